"""Mathematics: take the boxed answer, decide what text and exact arithmetic can, leave the rest to a worker."""

import dataclasses
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from services.verifier.checkers.answer import read_answer
from services.verifier.checkers.compare import same_answer
from services.verifier.checkers.extraction import extract_boxed
from services.verifier.checkers.guard import is_too_complex, is_too_hard_to_parse
from services.verifier.checkers.interface import Judgement, judged
from services.verifier.checkers.policy import MathPolicy
from services.verifier.checkers.quick import same_scalar
from services.verifier.checkers.rational import parse_rational, same_rational, same_text
from services.verifier.checkers.worker_pool import WorkerPool

__all__ = ["MathChecker"]

log = logging.getLogger(__name__)

WORKER = "services.verifier.checkers.math_worker"
GOLD_CPU_SECONDS = 1.0  # a gold that is slow against itself is slower against a wrong answer
MAX_REFERENCE_CHARACTERS = 200_000  # the reference's regular expressions are not linear
DEFAULT_POLICY = MathPolicy()


class MathChecker:
    r"""Judges the last `\boxed{}` of a completion against the gold answer.

    Args:
        workers: sympy processes at most; one or two a core.
        cpu_seconds: CPU time one comparison may use.
        policy: what counts as the same answer where readers differ.
        extract: strict: the last box; reference: math-verify reads the whole text and compares, as in the paper.
        shadow: also ask the reference, and log where it disagrees.
        walls: whether the sympy processes wall themselves in.

    """

    name = "math"

    def __init__(
        self,
        workers: int = 1,
        cpu_seconds: float = 2.0,
        policy: MathPolicy = DEFAULT_POLICY,
        extract: str = "strict",
        *,
        shadow: bool = False,
        walls: bool = True,
    ) -> None:
        self._pool = WorkerPool(WORKER, workers, cpu_seconds, walls=walls)
        self._policy = policy
        self._extract = extract
        self._shadow = shadow

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that are running."""
        return self._pool.pids

    async def start(self, families: Sequence[str] = ()) -> None:
        """Start a process now, so that a machine on which none starts is noticed before the first answer.

        Raises:
            ServiceFailed: it does not start, or not behind its walls.

        """
        await self._pool.start()

    async def check(self, completion: str, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Judge one completion; `task_data` is not used."""
        started = time.perf_counter()
        if self._extract == "reference":
            return judged(started, await self._reference(answer, completion), "reference")
        judgement = await self._strict(completion, answer)
        return await self._shadowed(judgement, answer, completion) if self._shadow else judgement

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
        status = await self._ask(answer, answer, GOLD_CPU_SECONDS, is_gold=True)
        return judged(started, status, "sympy", found.text)

    def has_answer(self, completion: str, task_data: Mapping[str, Any]) -> bool:
        """Say whether a completion that was cut has a box that is closed all the same."""
        return extract_boxed(completion).status == "ok"

    async def close(self) -> None:
        """End the worker processes."""
        await self._pool.close()

    async def _strict(self, completion: str, answer: str) -> Judgement:
        started = time.perf_counter()
        found = extract_boxed(completion)
        if found.status != "ok":
            return judged(started, found.status, "extraction")
        status, method = await self._compare(answer, found.text)
        return judged(started, status, method, found.text)

    async def _compare(self, gold: str, prediction: str) -> tuple[str, str]:
        """Status and method, the cheapest method first."""
        if same_text(gold, prediction):
            return "ok", "text"
        same = same_rational(gold, prediction, self._policy)
        if same is not None:
            return _status(same), "rational"
        if is_too_complex(prediction):
            return "too_complex", "guard"
        if is_too_complex(gold):
            log.error("gold %.80r is too complex to compare with; refuse its row with a gold check at load", gold)
            return "error", "guard"
        same = same_answer(read_answer(gold), read_answer(prediction), self._quick, self._policy)
        if same is not None:
            return _status(same), "structure"
        if is_too_hard_to_parse(prediction, gold):
            return "too_complex", "guard"
        return await self._ask(gold, prediction), "sympy"

    def _quick(self, gold: str, prediction: str) -> bool | None:
        return same_scalar(gold, prediction, self._policy)

    async def _ask(self, gold: str, prediction: str, cpu_seconds: float | None = None, *, is_gold: bool = False) -> str:
        policy = dataclasses.asdict(self._policy)
        body = {"gold": gold, "prediction": prediction, "policy": policy, "is_gold": is_gold}
        reply = await self._pool.outcome(body, cpu_seconds)
        return str(reply["status"])

    async def _reference(self, gold: str, completion: str) -> str:
        if not completion.strip():
            return "no_answer"
        if len(completion) > MAX_REFERENCE_CHARACTERS:
            return "too_complex"
        reply = await self._pool.outcome({"gold": gold, "prediction": completion, "reference": True})
        return str(reply["status"])

    async def _shadowed(self, judgement: Judgement, gold: str, completion: str) -> Judgement:
        """Ask the reference too; what it says is carried along and never changes the label."""
        status = await self._reference(gold, completion)
        if (status == "ok") != (judgement.status == "ok"):
            log.info(
                "the reference says %s where %s says %s: gold %.80r, answer %.200r",
                status, judgement.method, judgement.status, gold, judgement.extracted,
            )  # fmt: skip
        return dataclasses.replace(judgement, reference=status)


def _status(same: bool) -> str:
    return "ok" if same else "wrong"
