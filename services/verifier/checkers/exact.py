"""Exact text: for tasks whose answer has one spelling."""

import time
from collections.abc import Mapping
from typing import Any

from services.verifier.checkers.extraction import extract_marked_or_whole
from services.verifier.checkers.interface import Judgement, judged

__all__ = ["ExactChecker"]


class ExactChecker:
    """Accepts the gold's own text, spaces around it aside, in an `<answer>` element, a box, or as the whole text."""

    name = "exact"

    async def check(self, completion: str, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Judge one completion; `task_data` is not used."""
        started = time.perf_counter()
        found = extract_marked_or_whole(completion)
        if found.status != "ok":
            return judged(started, found.status, "extraction")
        return judged(started, "ok" if found.text == answer.strip() else "wrong", "text", found.text)

    async def check_gold(self, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Say whether the gold is found where it is the whole completion: not so if it is blank."""
        return await self.check(answer, answer, task_data)

    async def close(self) -> None:
        """Nothing is held."""
