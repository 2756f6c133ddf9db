import asyncio

import pytest

from pacs.runtime import tasks
from pacs.runtime.tasks import end_tasks

pytestmark = pytest.mark.anyio


async def test_a_task_that_swallows_a_cancellation_is_cancelled_again(monkeypatch):
    monkeypatch.setattr(tasks, "AGAIN_SECONDS", 0.01)
    swallowed = []

    async def stubborn():
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                swallowed.append(1)
                if len(swallowed) == 3:
                    raise

    async def failing():
        await asyncio.Event().wait()

    async def failed():
        raise RuntimeError("before anybody asked")

    ending = [asyncio.create_task(work()) for work in (stubborn, failing, failed)]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await end_tasks(ending)
    assert len(swallowed) == 3
    assert [task.done() for task in ending] == [True, True, True]


async def test_ending_nothing_is_fine():
    await end_tasks([])
