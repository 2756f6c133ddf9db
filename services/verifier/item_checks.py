"""Checks that other systems ask for, whichever way they come in: side by side, answered in their order."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pacs.errors import BadInput
from services.verifier.checkers.interface import Judgement
from services.verifier.checkers.registry import Registry
from services.verifier.judging import judge

__all__ = ["Item", "ItemChecks"]

CHECKS_AT_ONCE = 64
"""Over all calls: bounds the texts in memory, not the work, which the checkers' own pools bound."""


@dataclass(frozen=True)
class Item:
    """One thing to check.

    Args:
        task: name of the checker.
        completion: what a model wrote.
        answer: the gold answer.
        task_data: what else the checker needs.
        gold: whether the question is if the answer verifies against itself; the completion is then ignored.

    """

    task: str
    completion: str = ""
    answer: str = ""
    task_data: Mapping[str, Any] = field(default_factory=dict)
    gold: bool = False


class ItemChecks:
    """Judges items with the checkers of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._free = asyncio.Semaphore(CHECKS_AT_ONCE)

    async def check(self, items: Sequence[Item]) -> list[Judgement]:
        """Judge the items side by side.

        Raises:
            BadInput: an item names no checker, or its row cannot be judged.

        """
        try:
            async with asyncio.TaskGroup() as checks:
                tasks = [checks.create_task(self._check(index, item)) for index, item in enumerate(items)]
        except* BadInput as group:
            refusal = str(group.exceptions[0])
        else:
            return [task.result() for task in tasks]
        raise BadInput(refusal)

    async def _check(self, index: int, item: Item) -> Judgement:
        checker = self._registry.get(item.task)
        check = (
            partial(checker.check_gold, item.answer, item.task_data)
            if item.gold
            else partial(checker.check, item.completion, item.answer, item.task_data)
        )
        async with self._free:
            return await judge(check, f"item {index} of a call, task {item.task}")
