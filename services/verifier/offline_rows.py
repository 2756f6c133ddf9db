"""Rows of a file that is graded without a run: JSON lines in, JSON lines out."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pacs.errors import BadInput
from pacs.wire.groups import Label
from services.verifier.checkers.interface import Judgement

__all__ = ["OfflineRow", "read_rows", "result_line", "write_results"]

OWN_FIELDS = frozenset({"id", "gold", "prediction", "completion", "code", "task_data"})
LABELS = {Label.CORRECT: True, Label.WRONG: False, Label.INVALID: None}
BOXES = (r"\boxed", r"\fbox", "<think>", "</think>")


@dataclass(frozen=True)
class OfflineRow:
    """What a checker is asked about one line of the file."""

    row_id: Any
    completion: str
    gold: str
    task_data: Mapping[str, Any] = field(default_factory=dict)


def read_rows(path: Path, task: str, extract: str) -> list[OfflineRow]:
    """Read `id`, `gold` and `completion` or `prediction` of every line; for code `code`, and the rest as task data.

    A `prediction` is an answer by itself: for strict mathematics one without a box is put into one.

    Raises:
        BadInput: no such file, or a line breaks the rules; the text names it.

    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the rows must be a file of JSON lines in UTF-8, got {path}: {error}") from None
    numbered = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not numbered:
        raise BadInput(f"there must be rows to grade, got none in {path}")
    return [_row(f"{path} line {number}", number, line, task, extract) for number, line in numbered]


def result_line(row: OfflineRow, judgement: Judgement) -> str:
    """One line of the result; the label of what could not be judged is null."""
    return json.dumps(
        {
            "id": row.row_id,
            "label": LABELS[judgement.label],
            "status": judgement.status,
            "method": judgement.method,
            "seconds": round(judgement.seconds, 6),
        },
        ensure_ascii=False,
    )


def write_results(path: Path, lines: Iterable[str]) -> None:
    """Write all lines, or nothing: a reader never sees half of a result.

    Raises:
        BadInput: the file cannot be written.

    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise BadInput(f"--out must be a file that can be written, got {path}: {error}") from None


def _row(place: str, number: int, line: str, task: str, extract: str) -> OfflineRow:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BadInput(f"{place} must be a JSON object, got text that does not parse: {error}") from None
    if not isinstance(fields, dict):
        raise BadInput(f"{place} must be a JSON object, got a {type(fields).__name__}")
    task_data = fields.get("task_data", {key: value for key, value in fields.items() if key not in OWN_FIELDS})
    if not isinstance(task_data, dict):
        raise BadInput(f"{place} must have an object as task_data, got a {type(task_data).__name__}")
    row_id = fields.get("id", number)
    if task == "code" and "code" in fields:
        program = "".join(_texts(place, fields, ("code",)))
        return OfflineRow(row_id, f"```python\n{program}\n```\n", "", task_data)
    (given,) = _texts(place, fields, ("completion", "prediction"))
    gold = "" if task == "code" else "".join(_texts(place, fields, ("gold", "answer")))
    bare = "completion" not in fields and task == "math" and extract == "strict"
    return OfflineRow(row_id, _boxed(given) if bare else given, gold, task_data)


def _texts(place: str, fields: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    """The first of the named fields that is there; a number is taken as its text."""
    name = next((name for name in names if fields.get(name) is not None), None)
    if name is None:
        raise BadInput(f"{place} must have {' or '.join(names)}, got {', '.join(sorted(fields)) or 'no field'}")
    value = fields[name]
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise BadInput(f"{place} must have text as {name}, got a {type(value).__name__}")
    yield str(value)


def _boxed(prediction: str) -> str:
    return prediction if any(mark in prediction for mark in BOXES) else rf"\boxed{{{prediction}}}"
