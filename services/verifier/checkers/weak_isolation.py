"""Marks every verdict of a verifier that runs without walls, so that nobody mistakes its labels for guarded ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from services.verifier.checkers.extraction import has_marked_answer
from services.verifier.checkers.interface import Checker, Judgement, MarksAnswers, Starts

__all__ = ["WEAK", "WeaklyIsolated"]

WEAK = ", weak isolation"


class WeaklyIsolated:
    """Does as the checker inside does, and says in the method of every judgement that the isolation is weak."""

    def __init__(self, inside: Checker) -> None:
        self.inside = inside
        self.name = inside.name

    async def start(self, families: Sequence[str]) -> None:
        """Start what the checker inside needs."""
        if isinstance(self.inside, Starts):
            await self.inside.start(families)

    async def check(self, completion: str, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Judge one completion."""
        return _marked(await self.inside.check(completion, answer, task_data))

    async def check_gold(self, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Judge the gold."""
        return _marked(await self.inside.check_gold(answer, task_data))

    def has_answer(self, completion: str, task_data: Mapping[str, Any]) -> bool:
        """Say what the checker inside says, or whether there is a box or an `<answer>` element."""
        if isinstance(self.inside, MarksAnswers):
            return self.inside.has_answer(completion, task_data)
        return has_marked_answer(completion)

    async def close(self) -> None:
        """End what the checker inside holds."""
        await self.inside.close()


def _marked(judgement: Judgement) -> Judgement:
    return replace(judgement, method=judgement.method + WEAK)
