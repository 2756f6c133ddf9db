"""Reasoning Gym's own scorers, made binary: correct is a score of exactly 1, and partial credit is wrong."""

import time
from collections.abc import Mapping
from typing import Any

from pacs.errors import BadInput
from services.verifier.checkers.extraction import ANSWER_CLOSE, ANSWER_OPEN, extract_marked_or_whole
from services.verifier.checkers.interface import Judgement, judged
from services.verifier.checkers.worker_pool import WorkerPool

__all__ = ["EVALUATES_TEXT", "PAYS_WRONG_ANSWERS", "ReasoningGymChecker"]

WORKER = "services.verifier.checkers.reasoning_gym_worker"

MAX_ANSWER_CHARACTERS = 20_000  # several times the longest gold of any family in its default configuration

EVALUATES_TEXT = frozenset(
    {
        # eval(answer)
        "binary_matrix",
        "n_queens",
        "spiral_matrix",
        "string_insertion",
        # sympy's parse_expr(answer), which is eval underneath
        "countdown",
        "intermediate_integration",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
        # hands the answer to whichever family its entry names
        "composite",
        # eval of the entry, which comes from a data file
        "bitwise_arithmetic",
        "number_sorting",
    }
)
"""Families of reasoning-gym 0.1.25 whose scorer runs the model's or the row's text as Python: for a sandbox only."""

PAYS_WRONG_ANSWERS = frozenset(
    {
        "coin_flip",  # a common prefix counts in full: 0 for 0.234375
        "complex_arithmetic",  # min(1, exp(-distance)) is 1 where the distance is NaN: "nan" is always right
        "game_of_life_halting",  # compares bool(text), and every text but the empty one is true
    }
)
"""Families of reasoning-gym 0.1.25 that give 1.0 to answers that are wrong: training would learn those."""


class ReasoningGymChecker:
    """Judges answers to one entry of a Reasoning Gym family; `task_data` is `{"family": name, "entry": {…}}`.

    Args:
        workers: scoring processes at most.
        cpu_seconds: CPU time one score may use.

    """

    name = "reasoning_gym"

    def __init__(self, workers: int = 1, cpu_seconds: float = 2.0) -> None:
        self._pool = WorkerPool(WORKER, workers, cpu_seconds)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the scoring workers that are running."""
        return self._pool.pids

    async def check(self, completion: str, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Judge one completion; the scorer reads the gold from the entry, not from `answer`."""
        started = time.perf_counter()
        family, entry = _family_and_entry(task_data)
        found = extract_marked_or_whole(completion)
        if found.status != "ok":
            return judged(started, found.status, "extraction")
        if len(found.text) > MAX_ANSWER_CHARACTERS:
            return judged(started, "too_complex", "guard", found.text)
        reply = await self._pool.outcome({"family": family, "entry": entry, "answer": found.text})
        if reply["status"] == "unknown_family":
            raise BadInput(
                f"family must be one of reasoning-gym's data sets, got {family!r}; "
                f"known are {', '.join(reply['known'])}"
            )
        return judged(started, str(reply["status"]), "score", found.text)

    async def check_gold(self, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Say whether the family's scorer pays the gold in full; not so where JSON lost what it compares (tuples)."""
        return await self.check(f"{ANSWER_OPEN}{answer}{ANSWER_CLOSE}", answer, task_data)

    async def close(self) -> None:
        """End the worker processes."""
        await self._pool.close()


def _family_and_entry(task_data: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    family, entry = task_data.get("family"), task_data.get("entry")
    if not isinstance(family, str) or not isinstance(entry, Mapping):
        raise BadInput(
            "a reasoning_gym row needs task_data with a string `family` and a mapping `entry`, "
            f"got keys {sorted(task_data)}; write both when the rows are made"
        )
    if family in EVALUATES_TEXT:
        raise BadInput(
            f"family {family!r} is scored by running text as Python, which needs the sandbox; "
            f"choose a family outside {', '.join(sorted(EVALUATES_TEXT))}"
        )
    if family in PAYS_WRONG_ANSWERS:
        raise BadInput(
            f"family {family!r} gives full score to wrong answers; "
            f"choose a family outside {', '.join(sorted(PAYS_WRONG_ANSWERS))}"
        )
    return family, dict(entry)
