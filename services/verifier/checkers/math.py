"""Mathematics: take the boxed answer, decide what text and exact arithmetic can, leave the rest to math-verify."""

import logging
import time
from collections.abc import Mapping
from typing import Any

from services.verifier.checkers.extraction import extract_boxed
from services.verifier.checkers.guard import is_too_complex
from services.verifier.checkers.interface import Judgement, judged
from services.verifier.checkers.rational import parse_rational, same_rational, same_text
from services.verifier.checkers.worker_pool import WorkerPool

__all__ = ["MathChecker"]

log = logging.getLogger(__name__)

WORKER = "services.verifier.checkers.math_worker"
GOLD_CPU_SECONDS = 1.0  # a gold that is slow against itself is slower against a wrong answer


class MathChecker:
    r"""Judges the last `\boxed{}` of a completion against the gold answer.

    Args:
        workers: math-verify processes at most; one or two a core.
        cpu_seconds: CPU time one comparison may use.

    """

    name = "math"

    def __init__(self, workers: int = 1, cpu_seconds: float = 2.0) -> None:
        self._pool = WorkerPool(WORKER, workers, cpu_seconds)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the math-verify workers that are running."""
        return self._pool.pids

    async def check(self, completion: str, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Judge one completion; `task_data` is not used."""
        started = time.perf_counter()
        found = extract_boxed(completion)
        if found.status != "ok":
            return judged(started, found.status, "extraction")
        status, method = await self._compare(answer, found.text)
        return judged(started, status, method, found.text)

    async def check_gold(self, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Say whether the gold fits in a box, parses, and equals itself; equal text alone would prove nothing."""
        started = time.perf_counter()
        found = extract_boxed(rf"\boxed{{{answer}}}")
        if found.text != answer.strip():
            return judged(started, "wrong", "extraction", found.text)
        if found.status != "ok":
            return judged(started, found.status, "extraction")
        if parse_rational(answer) is not None:
            return judged(started, "ok", "rational", found.text)
        if is_too_complex(answer):
            return judged(started, "too_complex", "guard", found.text)
        status = await self._ask(answer, answer, GOLD_CPU_SECONDS)
        return judged(started, status, "sympy", found.text)

    async def close(self) -> None:
        """End the worker processes."""
        await self._pool.close()

    async def _compare(self, gold: str, prediction: str) -> tuple[str, str]:
        """Status and method."""
        if same_text(gold, prediction):
            return "ok", "text"
        same = same_rational(gold, prediction)
        if same is not None:
            return ("ok" if same else "wrong"), "rational"
        if is_too_complex(prediction):
            return "too_complex", "guard"
        if is_too_complex(gold):
            log.error("gold %.80r is too complex to compare with; refuse its row with a gold check at load", gold)
            return "error", "guard"
        return await self._ask(gold, prediction), "sympy"

    async def _ask(self, gold: str, prediction: str, cpu_seconds: float | None = None) -> str:
        reply = await self._pool.outcome({"gold": gold, "prediction": prediction}, cpu_seconds)
        return str(reply["status"])
