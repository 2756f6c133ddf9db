"""Rows become problems: the documented schema, and the split into training and held-out.

Schema of a row (`docs/data.md`): the text in `prompt` or a chat in `messages`, the gold in `answer`; optional `id`,
`task` (name of the checker) and `task_data` (an object the checker gets). The names are settings, and
`data.task_fields` names further fields that the checker gets.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pacs.data.rows import read_rows
from pacs.errors import BadInput
from pacs.runtime.config import DataSection

__all__ = ["Problem", "load_problems", "problem_index"]

COMPOSITE = "composite"
TASKS_WITHOUT_ANSWER = frozenset({"code"})  # what is right is in the tests


@dataclass(frozen=True)
class Problem:
    """One question with its gold answer.

    Args:
        messages: the chat that goes before the model, roles and contents.
        text: the question as people read it.
        task: name of the checker.

    """

    problem_id: str
    messages: tuple[Mapping[str, str], ...]
    text: str
    task: str
    answer: str
    task_data: Mapping[str, Any] = field(default_factory=dict)


def load_problems(data: DataSection, seed: int) -> tuple[list[Problem], list[Problem]]:
    """Read all problems; returns (training, held-out), disjoint in ids and in questions.

    Raises:
        BadInput: a file is missing or malformed, a row lacks a field, or nothing is left to train on.

    """
    if data.source == "reasoning_gym":
        problems = _family_problems(data, seed)
    else:
        assert data.path is not None  # the configuration refuses it
        problems = _file_problems(data.path, data)
    if data.heldout_path is not None:
        heldout = _file_problems(data.heldout_path, data)
    else:
        chosen = set(
            random.Random(f"heldout/{seed}").sample(range(len(problems)), min(data.heldout_rows, len(problems)))
        )
        heldout = [problem for index, problem in enumerate(problems) if index in chosen]
    asked = {problem.text for problem in heldout}
    training = [problem for problem in problems if problem.text not in asked]
    if not training:
        raise BadInput(
            f"there must be problems to train on, got {len(problems)} problems of which {len(heldout)} are held out; "
            "give more data or lower data.heldout_rows"
        )
    return training, heldout


def problem_index(sequence: int, problems: int, seed: int) -> int:
    """Which problem the prompt with this sequence number asks: a pure function, so a run repeats its order.

    Every epoch is a fresh permutation of all problems.
    """
    epoch, place = divmod(sequence, problems)
    return _permutation(problems, seed, epoch)[place]


@lru_cache(maxsize=2)
def _permutation(problems: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(problems))
    random.Random(f"order/{seed}/{epoch}").shuffle(order)
    return tuple(order)


def _file_problems(path: Path, data: DataSection) -> list[Problem]:
    problems = [_problem(row, number, path, data) for number, row in read_rows(path)]
    if not problems:
        raise BadInput(f"the data file must hold at least one row, got none in {path}")
    return problems


def _problem(row: Mapping[str, Any], number: int, path: Path, data: DataSection) -> Problem:
    where = f"{path} line {number}"
    row = {name: value for name, value in row.items() if value is not None}  # parquet has every column in every row
    chat, text = row.get(data.messages_field), row.get(data.prompt_field)
    if chat is None and text is None:
        raise BadInput(
            f"{where} needs the field {data.prompt_field!r} or {data.messages_field!r}, got {sorted(row)}; "
            "set data.prompt_field to the name used there"
        )
    task = str(row.get("task", data.task))
    if data.answer_field not in row and task not in TASKS_WITHOUT_ANSWER:
        raise BadInput(
            f"{where} needs the field {data.answer_field!r}, got {sorted(row)}; "
            "set data.answer_field to the name used there"
        )
    messages = _chat(chat, where) if chat is not None else _one_turn(str(text), data)
    return Problem(
        problem_id=str(row.get(data.id_field, number)),
        messages=messages,
        text=str(text) if text is not None else messages[-1]["content"],
        task=task,
        answer=str(row.get(data.answer_field, "")),
        task_data=_task_data(row, data, where),
    )


def _one_turn(text: str, data: DataSection) -> tuple[Mapping[str, str], ...]:
    return ({"role": "user", "content": data.template.replace("{prompt}", text)},)


def _chat(chat: Any, where: str) -> tuple[Mapping[str, str], ...]:
    if not isinstance(chat, Sequence) or isinstance(chat, str) or not chat:
        raise BadInput(f"{where}: a chat must be a non-empty list of messages, got {type(chat).__name__}")
    for message in chat:
        if not isinstance(message, Mapping) or not {"role", "content"} <= set(message):
            raise BadInput(f"{where}: every message needs role and content, got {message!r}")
    return tuple({"role": str(m["role"]), "content": str(m["content"])} for m in chat)


def _task_data(row: Mapping[str, Any], data: DataSection, where: str) -> Mapping[str, Any]:
    """The row's own object, and the fields that belong there but lie beside it."""
    own = row.get("task_data", {})
    if not isinstance(own, Mapping):
        raise BadInput(f"{where}: task_data must be an object, got {type(own).__name__}")
    return {**{name: row[name] for name in data.task_fields if name in row}, **own}


def _family_problems(data: DataSection, seed: int) -> list[Problem]:
    import reasoning_gym
    from reasoning_gym.composite import DatasetSpec
    from reasoning_gym.factory import DATASETS

    if data.family not in DATASETS:
        raise BadInput(f"data.family must be a reasoning_gym family, got {data.family!r}; known: {sorted(DATASETS)}")
    options = dict(data.family_options)
    try:
        if data.family == COMPOSITE:
            options["datasets"] = [DatasetSpec(**{"weight": 1.0, "config": {}, **part}) for part in options["datasets"]]
        generated = reasoning_gym.create_dataset(data.family, size=data.family_rows, seed=seed, **options)
    except (AssertionError, KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"data.family_options must be what {data.family} takes, got {dict(data.family_options)}: {error}"
        ) from error
    return [
        Problem(
            problem_id=f"{data.family}-{index}",
            messages=_one_turn(entry["question"], data),
            text=entry["question"],
            task="reasoning_gym",
            answer="" if entry["answer"] is None else str(entry["answer"]),
            task_data={"family": data.family, "entry": entry, "options": dict(data.family_options)},
        )
        for index, entry in enumerate(generated)
    ]
