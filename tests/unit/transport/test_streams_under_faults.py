"""Workers of all three stages that crash, dawdle, drop and set aside at random: no group is lost or counted twice."""

import asyncio
import random
from collections import Counter

import pytest

from pacs.transport.interface import Stream
from tests.stream_lanes import MOMENT, admitted

pytestmark = pytest.mark.anyio

GROUPS = 40
TOKENS = 7  # of each group that leaves the first stage
CLAIM_SECONDS = 0.03
NEXT = {Stream.PROMPTS: Stream.COMPLETIONS, Stream.COMPLETIONS: Stream.LABELED}


class Faults:
    """What became of every group, as the workers were told."""

    def __init__(self, lane, seed):
        self.lane = lane
        self.random = random.Random(seed)
        self.ended = Counter()  # payload → times somebody was told that it ended
        self.crashes = 0
        self.late = 0
        self.sampled = 0
        self.over = False

    async def worker(self, stream, consumer):
        """A process that lives, dies and is started again, until all is over."""
        while not self.over:
            streams = self.lane.process()
            held = await streams.reclaim(stream, consumer)
            while self.random.random() > 0.15 and not self.over:
                held += await streams.read(stream, consumer, self.random.choice([1, 2, 5]), MOMENT)
                self.random.shuffle(held)
                while held and self.random.random() > 0.2:
                    await self.finish(streams, stream, held.pop())
            self.crashes += bool(held)

    async def finish(self, streams, stream, delivery):
        fate = self.random.random()
        if fate < 0.2:  # dawdle: the claim may be taken over meanwhile
            await asyncio.sleep(self.random.random() * 2 * CLAIM_SECONDS)
        if fate > 0.95:
            moved = await streams.dead_letter(stream, delivery, "poison")
            self.ended[delivery.payload] += moved
        elif fate > 0.9:
            moved = await streams.drop(stream, delivery.entry_id, "unlucky")
            self.ended[delivery.payload] += moved
        elif stream is Stream.LABELED:
            moved = await streams.finish_trained([delivery.entry_id])
            self.ended[delivery.payload] += moved
        else:
            tokens = TOKENS if stream is Stream.PROMPTS else 0
            moved = await streams.hand_over(stream, delivery.entry_id, NEXT[stream], delivery.payload, tokens)
            self.sampled += tokens * moved
        self.late += not moved


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_group_ends_once_and_the_ledger_always_balances(open_lane, seed):
    lane = await open_lane(CLAIM_SECONDS)
    faults, observer = Faults(lane, seed), lane.process()
    looks = 0

    async def watch():
        nonlocal looks
        while (ledger := await observer.ledger()).admitted < GROUPS or ledger.in_flight:
            assert ledger.balances, ledger
            looks += 1
            await asyncio.sleep(0)  # the memory's answers need no turn of the loop
        faults.over = True

    try:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            for stream in (Stream.PROMPTS, Stream.COMPLETIONS, Stream.LABELED):
                for n in range(3):
                    tasks.create_task(faults.worker(stream, f"{stream.value} {n}"))
            tasks.create_task(watch())
            await admitted(observer, GROUPS)
    finally:
        faults.over = True

    ledger = await observer.ledger()
    assert ledger.balances
    assert faults.ended == {b"prompt %d" % n: 1 for n in range(GROUPS)}
    assert ledger.trained + sum(ledger.dropped.values()) == GROUPS
    assert ledger.tokens_generated == faults.sampled >= TOKENS * ledger.trained
    assert len(await lane.dead()) == ledger.dropped.get("poison", 0)
    assert faults.crashes > 0
    assert looks > 5
