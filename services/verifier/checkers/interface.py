"""What a checker is: the interface that built-in checkers and plug-ins share."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pacs.wire.groups import Label

__all__ = ["LABEL_OF_STATUS", "Checker", "Judgement", "MarksAnswers", "Starts", "judged"]

LABEL_OF_STATUS: Mapping[str, Label] = {
    "ok": Label.CORRECT,
    "wrong": Label.WRONG,
    "no_answer": Label.WRONG,
    "truncated": Label.WRONG,
    "too_complex": Label.WRONG,
    "timeout": Label.INVALID,
    "error": Label.INVALID,
}
"""The infrastructure's failures are never the completion's: no time-out and no error is a wrong answer."""

MAX_EXTRACTED_CHARACTERS = 500  # it is there to be looked at; a hostile megabyte is not


@dataclass(frozen=True)
class Judgement:
    """What a checker says of one completion.

    Args:
        status: ok, wrong, no_answer, truncated, too_complex, timeout or error.
        method: how it was decided: extraction, text, rational, structure, guard, sympy, reference, letter, score, …
        seconds: wall time of the check, the wait for a free worker included.
        extracted: what was taken for the answer, for people.
        reference: what the reference method says, a status; empty where it was not asked.

    """

    label: Label
    status: str
    method: str
    seconds: float
    extracted: str = ""
    reference: str = ""


def judged(started: float, status: str, method: str, extracted: str = "") -> Judgement:
    """Make the judgement whose label follows from its status.

    Args:
        started: `time.perf_counter()` when the check began.
        status: a key of `LABEL_OF_STATUS`.

    """
    return Judgement(
        label=LABEL_OF_STATUS[status],
        status=status,
        method=method,
        seconds=time.perf_counter() - started,
        extracted=extracted[:MAX_EXTRACTED_CHARACTERS],
    )


@runtime_checkable
class Checker(Protocol):
    """Judges completions of one task; safe to call many times at once."""

    name: str

    async def check(self, completion: str, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Judge one completion against the gold answer.

        Raises:
            BadInput: the row itself cannot be judged (its task data break a rule), whatever the completion says.

        """
        ...

    async def check_gold(self, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Say whether the gold is accepted when it is given as the answer; a row that fails cannot be trained on.

        Raises:
            BadInput: as for `check`.

        """
        ...

    async def close(self) -> None:
        """End what the checker holds, worker processes first of all."""
        ...


@runtime_checkable
class MarksAnswers(Protocol):
    """A checker that knows what marks an answer; for the others it is a box or an `<answer>` element."""

    def has_answer(self, completion: str, task_data: Mapping[str, Any]) -> bool:
        """Say whether a completion that the token limit cut has a complete answer all the same.

        Raises:
            BadInput: the row itself cannot be judged.

        """
        ...


@runtime_checkable
class Starts(Protocol):
    """A checker that can start what it needs before the first row."""

    async def start(self, families: Sequence[str]) -> None:
        """Start it.

        Args:
            families: of reasoning_gym, where the rows come from there.

        Raises:
            BadInput: it does not start on this machine.

        """
        ...
