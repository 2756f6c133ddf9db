"""Ending asyncio tasks for good."""

import asyncio
from collections.abc import Iterable
from typing import Any

__all__ = ["end_tasks"]

AGAIN_SECONDS = 0.5


async def end_tasks(tasks: "Iterable[asyncio.Task[Any]]") -> None:
    """Cancel tasks and wait until they have ended; what they raise is theirs.

    Once is not enough: in Python 3.11 `asyncio.wait_for`, through which redis-py sends, swallows a cancellation that
    comes just as its work is done (https://github.com/python/cpython/issues/86296), and the task goes on.
    """
    ending = list(tasks)
    while running := [task for task in ending if not task.done()]:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=AGAIN_SECONDS)
    await asyncio.gather(*ending, return_exceptions=True)
