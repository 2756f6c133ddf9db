"""Reasoning Gym's own scorers, made binary: correct is a score of exactly 1, and partial credit is wrong."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pacs.errors import BadInput
from pacs.runtime.config import SandboxSection
from services.verifier.checkers.extraction import extract_marked_or_whole
from services.verifier.checkers.interface import Judgement, judged
from services.verifier.checkers.reasoning_gym_sandbox import SandboxedScorers
from services.verifier.checkers.reasoning_gym_scorers import GOLD_IN_METADATA, WITHOUT_GOLD
from services.verifier.checkers.worker_pool import WorkerPool

__all__ = ["EVALUATES_TEXT", "ReasoningGymChecker"]

WORKER = "services.verifier.checkers.reasoning_gym_worker"
COMPOSITE = "composite"
NO_MOVES = "[]"

MAX_ANSWER_CHARACTERS = 20_000  # several times the longest gold of any family in its default configuration

EVALUATES_TEXT = frozenset(
    {
        # eval(answer)
        "binary_matrix",
        "n_queens",
        "spiral_matrix",
        "string_insertion",
        # sympy's parse_expr(answer), which is eval underneath
        "intermediate_integration",
        "polynomial_multiplication",
        "simple_integration",
        # eval of the entry, which comes from a data file
        "bitwise_arithmetic",
    }
)
"""Families of reasoning-gym 0.1.25 whose scorer runs the model's or the row's text as Python: for the sandbox only."""


@dataclass(frozen=True)
class Row:
    """What a row asks: a family, its options where they are not the default ones, and an entry."""

    family: str
    entry: dict[str, Any]
    options: dict[str, Any]


class ReasoningGymChecker:
    """Judges answers to one entry of a family; `task_data` is `{"family": name, "entry": {…}, "options": {…}}`.

    Args:
        workers: scoring processes at most.
        cpu_seconds: CPU time one score may use.
        sandbox: for the families whose scorers evaluate text.

    """

    name = "reasoning_gym"

    def __init__(self, workers: int = 1, cpu_seconds: float = 2.0, sandbox: SandboxSection | None = None) -> None:
        settings = sandbox or SandboxSection()
        self._pool = WorkerPool(WORKER, workers, cpu_seconds, walls=settings.isolation != "weak")
        self._sandboxed = SandboxedScorers(settings, cpu_seconds)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the scoring workers that are running."""
        return self._pool.pids

    async def start(self, families: Sequence[str]) -> None:
        """Start the sandbox now if a family needs it, so that a machine without one is refused at once.

        Raises:
            BadInput: no mode that the settings allow works here.

        """
        if EVALUATES_TEXT.intersection(families):
            await self._sandboxed.start()

    async def check(self, completion: str, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Judge one completion; the scorer reads the gold from the entry, not from `answer`."""
        started = time.perf_counter()
        row = _row(task_data)
        found = extract_marked_or_whole(completion)
        if found.status != "ok":
            return judged(started, found.status, "extraction")
        if len(found.text) > MAX_ANSWER_CHARACTERS:
            return judged(started, "too_complex", "guard", found.text)
        return judged(started, await self._status(row, found.text), "score", found.text)

    async def check_gold(self, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Say whether the scorer pays the gold in full: the row's, or the one the entry shows.

        Entries without any gold are accepted if the scorer can play no moves at all.
        """
        started = time.perf_counter()
        row = _row(task_data)
        if row.family in WITHOUT_GOLD:
            status = await self._status(row, NO_MOVES)
            return judged(started, "ok" if status == "wrong" else "error", "played")
        if row.family in GOLD_IN_METADATA:
            shown = row.entry.get("metadata", {}).get(GOLD_IN_METADATA[row.family])
            answer = shown if isinstance(shown, str) else json.dumps(shown)
        found = extract_marked_or_whole(f"<answer>{answer}</answer>")
        if found.status != "ok":
            return judged(started, found.status, "extraction")
        return judged(started, await self._status(row, found.text), "score", found.text)

    async def close(self) -> None:
        """End the worker processes and the sandbox."""
        await self._pool.close()
        await self._sandboxed.close()

    async def _status(self, row: Row, answer: str) -> str:
        request = {**asdict(row), "answer": answer}
        outcome = self._sandboxed.outcome if row.family in EVALUATES_TEXT else self._pool.outcome
        reply = await outcome(request)
        if reply["status"] == "unknown_family":
            raise BadInput(
                f"family must be one of reasoning-gym's data sets, got {row.family!r}; "
                f"known are {', '.join(reply['known'])}"
            )
        return str(reply["status"])


def _row(task_data: Mapping[str, Any]) -> Row:
    family, entry = task_data.get("family"), task_data.get("entry")
    options = task_data.get("options") or {}
    if not isinstance(family, str) or not isinstance(entry, Mapping) or not isinstance(options, Mapping):
        raise BadInput(
            "a reasoning_gym row needs task_data with a string `family`, a mapping `entry`, and if any a mapping "
            f"`options`, got keys {sorted(task_data)}; write them when the rows are made"
        )
    return _part(entry, options) if family == COMPOSITE else Row(family, dict(entry), dict(options))


def _part(entry: Mapping[str, Any], options: Mapping[str, Any]) -> Row:
    """The row of the family that a composite entry comes from."""
    family = entry.get("metadata", {}).get("source_dataset")
    if not isinstance(family, str) or family == COMPOSITE:
        raise BadInput(
            f"an entry of a composite must name its family as metadata.source_dataset, got {family!r}; "
            "composites of composites cannot be scored"
        )
    configs = {part["name"]: part.get("config", {}) for part in options.get("datasets", [])}
    return Row(family, dict(entry), dict(configs.get(family, {})))
