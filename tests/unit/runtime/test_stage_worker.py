import asyncio
import contextlib
from collections import Counter

import pytest
from google.protobuf.message import DecodeError

from pacs.errors import BadInput
from pacs.runtime import worker as worker_module
from pacs.runtime.worker import Drop, HandOver, StageWorker
from pacs.testing import assert_eventually
from pacs.transport.interface import Ledger, Stream
from pacs.transport.memory import MemoryStreams
from tests.stream_lanes import MOMENT, admitted

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _short_reads(monkeypatch):
    monkeypatch.setattr(worker_module, "READ_WAIT_SECONDS", MOMENT)


class Handler:
    """Answers when it is let; remembers what was in hand."""

    def __init__(self, outcome=lambda payload: HandOver(payload.upper(), new_tokens=3)):
        self.outcome = outcome
        self.let = asyncio.Event()
        self.let.set()
        self.started = []
        self.in_hand = 0
        self.most_in_hand = 0

    async def __call__(self, payload):
        self.started.append(payload)
        self.in_hand += 1
        self.most_in_hand = max(self.most_in_hand, self.in_hand)
        try:
            await self.let.wait()
        finally:
            self.in_hand -= 1
        return self.outcome(payload)


def make_worker(streams, handle, *, gate_open=True, **settings):
    gate = asyncio.Event()
    if gate_open:
        gate.set()
    values = {"concurrency": 2, "max_deliveries": 2, "drain_seconds": MOMENT, **settings}
    return StageWorker(streams, Stream.PROMPTS, Stream.COMPLETIONS, "worker", handle, gate=gate, **values)


@contextlib.asynccontextmanager
async def working(worker):
    stop = asyncio.Event()
    task = asyncio.create_task(worker.run(stop))
    try:
        yield stop
    finally:
        stop.set()
        async with asyncio.timeout(10):
            await task


async def moved(streams, groups):
    async def all_there():
        return (await streams.queue_lengths())[Stream.COMPLETIONS] == groups

    await assert_eventually(all_there)
    return [d.payload for d in await streams.read(Stream.COMPLETIONS, "verifier", groups, 1.0)]


async def test_groups_are_handled_and_handed_over_with_their_tokens():
    streams = await admitted(MemoryStreams(), 3)
    async with working(make_worker(streams, Handler())):
        assert sorted(await moved(streams, 3)) == [b"PROMPT 0", b"PROMPT 1", b"PROMPT 2"]
    assert await streams.ledger() == Ledger(3, 0, 3, tokens_generated=9)


async def test_no_more_in_hand_than_allowed():
    streams, handler = await admitted(MemoryStreams(), 7), Handler()
    handler.let.clear()
    async with working(make_worker(streams, handler, concurrency=3)):
        await assert_eventually(lambda: handler.in_hand == 3)
        assert await streams.read(Stream.PROMPTS, "another", 9, MOMENT), "the rest is left for others"
        handler.let.set()
        await moved(streams, 3)
    assert handler.most_in_hand == 3


async def test_no_more_in_hand_than_allowed_after_a_restart_either():
    streams, handler = await admitted(MemoryStreams(), 6), Handler()
    await streams.read(Stream.PROMPTS, "worker", 5, 1.0)  # an earlier life, with more slots
    handler.let.clear()
    async with working(make_worker(streams, handler, concurrency=2)):
        await assert_eventually(lambda: handler.in_hand == 2)
        handler.let.set()
        assert len(await moved(streams, 6)) == 6
    assert handler.most_in_hand == 2
    assert Counter(handler.started) == {b"prompt %d" % n: 1 for n in range(6)}


async def test_a_closed_gate_takes_nothing():
    streams, handler = await admitted(MemoryStreams(), 2), Handler()
    worker = make_worker(streams, handler, gate_open=False)
    async with working(worker):
        taken = await streams.read(Stream.PROMPTS, "another", 1, 1.0)
        assert len(taken) == 1
        assert handler.started == []
        worker.gate.set()
        await assert_eventually(lambda: handler.started == [b"prompt 1"])


async def test_a_group_that_comes_just_as_the_gate_closes_is_not_begun():
    class Reading(MemoryStreams):
        async def read(self, stream, consumer, count, wait_seconds):
            reading.set()
            return await super().read(stream, consumer, count, 10.0)

    reading = asyncio.Event()
    streams, handler = Reading(), Handler()
    worker = make_worker(streams, handler)
    async with working(worker):
        await reading.wait()
        worker.gate.clear()
        await admitted(streams, 1)
        await assert_eventually(lambda: _deliveries(streams) == 1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert handler.started == []
        worker.gate.set()
        assert await moved(streams, 1) == [b"PROMPT 0"]


async def test_a_group_finished_behind_a_closed_gate_waits_there():
    streams, handler = await admitted(MemoryStreams(), 1), Handler()
    handler.let.clear()
    worker = make_worker(streams, handler)
    async with working(worker):
        await assert_eventually(lambda: handler.in_hand == 1)
        worker.gate.clear()
        handler.let.set()
        await assert_eventually(lambda: handler.in_hand == 0)
        assert await streams.read(Stream.COMPLETIONS, "verifier", 1, MOMENT) == []
        worker.gate.set()
        assert await moved(streams, 1) == [b"PROMPT 0"]


async def test_abandoned_groups_are_handled_again_and_their_first_outcome_never_moves_on():
    streams = await admitted(MemoryStreams(), 2)
    handler = Handler(lambda payload: HandOver(b"%d" % len(handler.started)))
    worker = make_worker(streams, handler)
    async with working(worker):
        handler.let.clear()
        await assert_eventually(lambda: handler.in_hand == 2)
        worker.gate.clear()
        handler.let.set()
        await assert_eventually(lambda: handler.in_hand == 0)  # both finished, both wait at the gate
        await worker.abandon()
        worker.gate.set()
        assert set(await moved(streams, 2)) <= {b"3", b"4"}
    assert Counter(handler.started) == {b"prompt 0": 2, b"prompt 1": 2}


async def test_a_group_whose_handling_fails_is_delivered_again():
    streams, fails = await admitted(MemoryStreams(claim_seconds=MOMENT), 1), [RuntimeError("once")]

    def outcome(payload):
        if fails:
            raise fails.pop()
        return HandOver(payload)

    async with working(make_worker(streams, Handler(outcome))):
        assert await moved(streams, 1) == [b"prompt 0"]
    assert (await streams.ledger()).balances


async def test_a_group_that_keeps_failing_goes_to_the_dead_letters_and_the_others_go_on(caplog):
    streams = await admitted(MemoryStreams(claim_seconds=MOMENT), 3)

    def outcome(payload):
        if payload == b"prompt 1":
            raise RuntimeError("broken for good")
        return HandOver(payload)

    handler = Handler(outcome)
    async with working(make_worker(streams, handler, max_deliveries=2)):
        await moved(streams, 2)

        async def set_aside():
            return (await streams.ledger()).dropped == {"poison": 1}

        await assert_eventually(set_aside)
    assert handler.started.count(b"prompt 1") == 2
    assert (await streams.queue_lengths())[Stream.DEAD] == 1
    assert (await streams.ledger()).balances
    assert "broken for good" in caplog.text


@pytest.mark.parametrize(("error", "reason"), [(DecodeError("x"), "undecodable"), (BadInput("no"), "refused")])
async def test_what_would_be_no_better_the_next_time_is_set_aside_at_once(error, reason):
    streams = await admitted(MemoryStreams(), 1)

    def outcome(_payload):
        raise error

    handler = Handler(outcome)
    async with working(make_worker(streams, handler)):

        async def set_aside():
            return (await streams.ledger()).dropped == {reason: 1}

        await assert_eventually(set_aside)
    assert len(handler.started) == 1
    assert (await streams.queue_lengths())[Stream.DEAD] == 1


async def test_a_drop_ends_the_group_under_its_reason():
    streams = await admitted(MemoryStreams(), 1)
    async with working(make_worker(streams, Handler(lambda _: Drop("prompt_too_long")))):

        async def dropped():
            return await streams.ledger() == Ledger(1, 0, 0, {"prompt_too_long": 1})

        await assert_eventually(dropped)


async def test_stopping_lets_groups_in_hand_finish_and_takes_no_more():
    streams, handler = await admitted(MemoryStreams(), 3), Handler()
    handler.let.clear()
    async with working(make_worker(streams, handler, drain_seconds=10.0)) as stop:
        await assert_eventually(lambda: handler.in_hand == 2)
        stop.set()
        await asyncio.sleep(0)
        handler.let.set()
    assert len(await moved(streams, 2)) == 2
    assert len(handler.started) == 2


async def test_what_is_unfinished_when_the_time_is_up_stays_for_the_next_start():
    streams, handler = await admitted(MemoryStreams(), 2), Handler()
    handler.let.clear()
    async with working(make_worker(streams, handler)):
        await assert_eventually(lambda: handler.in_hand == 2)
    assert handler.in_hand == 0, "nothing goes on behind the back of a stopped worker"
    assert (await streams.queue_lengths())[Stream.PROMPTS] == 2
    handler.let.set()
    async with working(make_worker(streams, handler)):
        assert sorted(await moved(streams, 2)) == [b"PROMPT 0", b"PROMPT 1"]


async def test_stopping_behind_a_closed_gate_ends_in_time():
    streams = await admitted(MemoryStreams(), 1)
    async with working(make_worker(streams, Handler(), gate_open=False)) as stop:
        stop.set()
    assert (await streams.ledger()).in_flight == 1


async def test_a_slow_group_taken_over_by_its_own_worker_is_not_begun_twice():
    streams, handler = await admitted(MemoryStreams(claim_seconds=MOMENT), 1), Handler()
    handler.let.clear()
    async with working(make_worker(streams, handler, max_deliveries=100)):
        await assert_eventually(lambda: _deliveries(streams) >= 3)
        handler.let.set()
        await moved(streams, 1)
    assert len(handler.started) == 1


def _deliveries(streams):
    return max(entry.deliveries for entry in streams._streams[Stream.PROMPTS].values())
