"""The loop of a stage: take a group, handle it, hand it over. Shared by rollout and verifier.

The handler knows bytes in and an outcome out; this file knows when to take, what to do with a group that cannot be
handled, and how to stop.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from pacs.errors import BadInput
from pacs.runtime.tasks import end_tasks
from pacs.transport.interface import Delivery, GroupStreams, Stream

__all__ = ["Drop", "HandOver", "StageWorker"]

READ_WAIT_SECONDS = 1.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HandOver:
    """The group moves on with these bytes; `new_tokens` were sampled in this stage."""

    payload: bytes
    new_tokens: int = 0


@dataclass(frozen=True)
class Drop:
    """The group ends here and is counted under this reason."""

    reason: str


Outcome = HandOver | Drop


@dataclass
class StageWorker:
    """One consumer of one stream.

    Args:
        streams: the lane it serves.
        source: stream it reads.
        target: stream it hands over to.
        consumer: stable name, so that a restarted worker finds what it held.
        handle: bytes of one group in, outcome out. An exception leaves the group to be delivered again.
        concurrency: groups in hand at most.
        max_deliveries: tries before a group goes to the dead-letter stream.
        gate: set while groups may be taken and finished ones may move on; they wait meanwhile.
        drain_seconds: time given to groups in hand when stopping.

    """

    streams: GroupStreams
    source: Stream
    target: Stream
    consumer: str
    handle: Callable[[bytes], Awaitable[Outcome]]
    concurrency: int
    max_deliveries: int
    gate: asyncio.Event
    drain_seconds: float = 5.0

    def __post_init__(self) -> None:
        self._in_hand: dict[str, asyncio.Task[None]] = {}
        self._reclaim = True
        self._freed = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Work until told to stop; what is unfinished then stays pending for the next start."""
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                step = asyncio.ensure_future(self._take())
                await asyncio.wait({step, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if step.done():
                    step.result()
                else:
                    await end_tasks([step])
            if self._in_hand:
                await asyncio.wait(self._in_hand.values(), timeout=self.drain_seconds)
        finally:
            stopped.cancel()
            await self.abandon()

    async def abandon(self) -> None:
        """Let go of every group in hand, unfinished; they are taken again afterwards."""
        await end_tasks(self._in_hand.values())
        self._in_hand.clear()
        self._reclaim = True

    async def _take(self) -> None:
        await self.gate.wait()
        await self._room()
        free = self.concurrency - len(self._in_hand)
        if self._reclaim:
            self._reclaim = False
            deliveries = await self.streams.reclaim(self.source, self.consumer)
        else:
            deliveries = await self.streams.read(self.source, self.consumer, free, READ_WAIT_SECONDS)
        for delivery in deliveries:
            if delivery.entry_id not in self._in_hand:
                await self._room()  # an earlier life may have held more than we may
                await self._accept(delivery)

    async def _room(self) -> None:
        while len(self._in_hand) >= self.concurrency:
            self._freed.clear()
            await self._freed.wait()

    async def _accept(self, delivery: Delivery) -> None:
        if delivery.deliveries > self.max_deliveries:
            logger.error("%s: delivered %d times, to the dead-letter stream", self._name(delivery), delivery.deliveries)
            await self.streams.dead_letter(self.source, delivery, "poison")
            return
        task = asyncio.create_task(self._finish(delivery))
        self._in_hand[delivery.entry_id] = task
        task.add_done_callback(lambda _: self._forget(delivery.entry_id, task))

    def _forget(self, entry_id: str, task: asyncio.Task[None]) -> None:
        if self._in_hand.get(entry_id) is task:
            del self._in_hand[entry_id]
        self._freed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s %s: left for another delivery", self.source.value, entry_id, exc_info=error)

    async def _finish(self, delivery: Delivery) -> None:
        await self.gate.wait()  # it may have closed while we were reading
        try:
            outcome = await self.handle(delivery.payload)
        except (DecodeError, BadInput) as error:  # it would be no better the next time
            logger.error("%s: %s; to the dead-letter stream", self._name(delivery), error)
            reason = "undecodable" if isinstance(error, DecodeError) else "refused"
            await self.streams.dead_letter(self.source, delivery, reason)
            return
        await self.gate.wait()
        if isinstance(outcome, Drop):
            moved = await self.streams.drop(self.source, delivery.entry_id, outcome.reason)
        else:
            moved = await self.streams.hand_over(
                self.source, delivery.entry_id, self.target, outcome.payload, outcome.new_tokens
            )
        if not moved:
            logger.warning("%s: finished by another worker first", self._name(delivery))

    def _name(self, delivery: Delivery) -> str:
        return f"{self.source.value} {delivery.entry_id}"
