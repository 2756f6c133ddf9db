"""The promises of `pacs.transport.interface`, one body for memory and Redis."""

import asyncio

import pytest

from pacs.transport.interface import Ledger, Stream
from tests.stream_lanes import MOMENT, WAIT, admitted, take_one

pytestmark = pytest.mark.anyio


async def test_prompts_are_admitted_in_order_and_once(open_lane):
    streams = (await open_lane()).process()
    assert [await streams.admit(n, b"%d" % n) for n in (0, 0, 2, 1, 1, 2)] == [True, False, False, True, False, True]
    taken = await streams.read(Stream.PROMPTS, "worker", 10, WAIT)
    assert [d.payload for d in taken] == [b"0", b"1", b"2"]
    assert await streams.ledger() == Ledger(admitted=3, trained=0, in_flight=3)


async def test_two_workers_share_the_stream_oldest_first(open_lane):
    lane = await open_lane()
    await admitted(lane.process(), 3)
    first = await lane.process().read(Stream.PROMPTS, "a", 2, WAIT)
    second = await lane.process().read(Stream.PROMPTS, "b", 2, WAIT)
    assert [d.payload for d in first] == [b"prompt 0", b"prompt 1"]
    assert [d.payload for d in second] == [b"prompt 2"]
    assert {d.deliveries for d in first + second} == {1}


async def test_a_read_without_groups_ends_in_time(open_lane):
    assert await (await open_lane()).process().read(Stream.PROMPTS, "worker", 1, MOMENT) == []


async def test_any_bytes_travel_unchanged(open_lane):
    streams = (await open_lane()).process()
    payload = bytes(range(256)) + b"\r\n\x00" * 3
    await streams.admit(0, payload)
    delivery = await take_one(streams, "worker")
    assert delivery.payload == payload
    await streams.hand_over(Stream.PROMPTS, delivery.entry_id, Stream.COMPLETIONS, payload[::-1])
    assert (await take_one(streams, "verifier", Stream.COMPLETIONS)).payload == payload[::-1]


async def test_a_group_is_handed_over_once(open_lane):
    streams = await admitted((await open_lane()).process(), 1)
    delivery = await take_one(streams, "worker")
    tries = [
        await streams.hand_over(Stream.PROMPTS, delivery.entry_id, Stream.COMPLETIONS, payload, new_tokens=5)
        for payload in (b"first", b"second")
    ]
    assert tries == [True, False]
    assert [d.payload for d in await streams.read(Stream.COMPLETIONS, "verifier", 10, WAIT)] == [b"first"]
    assert not await streams.drop(Stream.PROMPTS, delivery.entry_id, "late")
    assert not await streams.dead_letter(Stream.PROMPTS, delivery, "late")
    assert await streams.ledger() == Ledger(admitted=1, trained=0, in_flight=1, tokens_generated=5)


async def test_a_stale_group_is_dropped_and_its_prompt_admitted_again_in_one_step(open_lane):
    streams = await admitted((await open_lane()).process(), 1)
    prompt = await take_one(streams, "worker")
    await streams.hand_over(Stream.PROMPTS, prompt.entry_id, Stream.LABELED, b"group")
    stale = await take_one(streams, "learner", Stream.LABELED)
    tries = [await streams.admit_again(Stream.LABELED, stale.entry_id, b"prompt 0 again", "stale") for _ in range(2)]
    assert tries == [True, False]
    assert await streams.ledger() == Ledger(admitted=2, trained=0, in_flight=1, dropped={"stale": 1})
    assert (await streams.ledger()).next_sequence == 1, "its number in the order is the same"
    assert (await take_one(streams, "worker")).payload == b"prompt 0 again"
    assert await streams.admit(1, b"prompt 1")


async def test_nobody_finishes_what_was_never_taken(open_lane):
    streams = await admitted((await open_lane()).process(), 1)
    held = await take_one(streams, "worker")
    await streams.admit(1, b"prompt 1")
    free_id = f"{int(held.entry_id.split('-')[0]) + 1_000_000}-0"
    assert not await streams.hand_over(Stream.PROMPTS, free_id, Stream.COMPLETIONS, b"x")
    assert await streams.finish_trained([free_id]) == 0
    assert (await streams.ledger()).in_flight == 2


async def test_what_a_crashed_worker_held_comes_back_to_it(open_lane):
    lane = await open_lane()
    await admitted(lane.process(), 3)
    held = await lane.process().read(Stream.PROMPTS, "worker", 2, WAIT)
    restarted = lane.process()
    assert await restarted.reclaim(Stream.PROMPTS, "another") == []
    again = await restarted.reclaim(Stream.PROMPTS, "worker")
    assert [(d.entry_id, d.payload) for d in again] == [(d.entry_id, d.payload) for d in held]
    assert [d.deliveries for d in again] == [2, 2]
    assert [d.payload for d in await restarted.read(Stream.PROMPTS, "worker", 5, WAIT)] == [b"prompt 2"]


async def test_a_group_in_hand_is_nobody_elses_before_the_deadline(open_lane):
    lane = await open_lane()
    await admitted(lane.process(), 1)
    await take_one(lane.process(), "worker")
    assert await lane.process().read(Stream.PROMPTS, "another", 1, MOMENT) == []


async def test_after_the_deadline_another_takes_over_and_the_late_one_changes_nothing(open_lane):
    lane = await open_lane(claim_seconds=0.05)
    slow, quick = lane.process(), lane.process()
    await admitted(slow, 1)
    held = await take_one(slow, "slow")
    taken = []
    while not taken:
        taken = await quick.read(Stream.PROMPTS, "quick", 1, MOMENT)
    assert [(d.entry_id, d.deliveries) for d in taken] == [(held.entry_id, 2)]
    assert await quick.hand_over(Stream.PROMPTS, held.entry_id, Stream.COMPLETIONS, b"quick", 3)
    assert not await slow.hand_over(Stream.PROMPTS, held.entry_id, Stream.COMPLETIONS, b"slow", 3)
    assert [d.payload for d in await slow.read(Stream.COMPLETIONS, "verifier", 5, WAIT)] == [b"quick"]
    assert (await slow.ledger()).tokens_generated == 3


async def test_the_former_holder_may_finish_before_the_one_who_took_over(open_lane):
    lane = await open_lane(claim_seconds=0.05)
    await admitted(lane.process(), 1)
    held = await take_one(lane.process(), "slow")
    taken = []
    while not taken:
        taken = await lane.process().read(Stream.PROMPTS, "quick", 1, MOMENT)
    assert await lane.process().drop(Stream.PROMPTS, held.entry_id, "prompt_too_long")
    assert not await lane.process().hand_over(Stream.PROMPTS, held.entry_id, Stream.COMPLETIONS, b"quick")
    assert await lane.process().reclaim(Stream.PROMPTS, "quick") == []
    assert await lane.process().ledger() == Ledger(1, 0, 0, {"prompt_too_long": 1})


async def test_dropped_groups_are_counted_by_reason(open_lane):
    streams = await admitted((await open_lane()).process(), 3)
    for delivery, reason in zip(await streams.read(Stream.PROMPTS, "w", 3, WAIT), ["a", "b", "a"], strict=True):
        assert await streams.drop(Stream.PROMPTS, delivery.entry_id, reason)
    ledger = await streams.ledger()
    assert (ledger.dropped, ledger.in_flight, ledger.balances) == ({"a": 2, "b": 1}, 0, True)


async def test_a_dead_letter_keeps_the_bytes_and_counts_as_dropped(open_lane):
    lane = await open_lane()
    streams = lane.process()
    await streams.admit(0, b"\xff\x00 no group")
    delivery = await take_one(streams, "worker")
    assert await streams.dead_letter(Stream.PROMPTS, delivery, "undecodable")
    assert not await streams.dead_letter(Stream.PROMPTS, delivery, "undecodable")
    assert await lane.dead() == [b"\xff\x00 no group"]
    assert await streams.ledger() == Ledger(1, 0, 0, {"undecodable": 1})
    assert (await streams.queue_lengths())[Stream.DEAD] == 1


async def test_trained_groups_leave_the_stream_and_are_counted_once(open_lane):
    streams = await admitted((await open_lane()).process(), 3)
    for delivery in await streams.read(Stream.PROMPTS, "w", 3, WAIT):
        await streams.hand_over(Stream.PROMPTS, delivery.entry_id, Stream.LABELED, delivery.payload)
    ids = [d.entry_id for d in await streams.read(Stream.LABELED, "learner", 3, WAIT)]
    assert await streams.finish_trained([]) == 0
    assert await streams.finish_trained(ids[:2]) == 2
    assert await streams.finish_trained(ids) == 1
    assert await streams.ledger() == Ledger(admitted=3, trained=3, in_flight=0)
    assert await streams.reclaim(Stream.LABELED, "learner") == []


async def test_queue_lengths_count_what_is_in_hands_too(open_lane):
    streams = await admitted((await open_lane()).process(), 3)
    delivery = await take_one(streams, "worker")
    await streams.hand_over(Stream.PROMPTS, delivery.entry_id, Stream.COMPLETIONS, b"group")
    await take_one(streams, "worker")
    lengths = await streams.queue_lengths()
    assert {s: lengths[s] for s in Stream} == {
        Stream.PROMPTS: 2,
        Stream.COMPLETIONS: 1,
        Stream.LABELED: 0,
        Stream.DEAD: 0,
    }


async def test_a_group_under_way_is_never_nowhere(open_lane):
    """Neither while waiting readers contend for the news of it, nor where the hand-over is cut off."""
    lane = await open_lane()
    streams = await admitted(lane.process(), 8)
    held = await streams.read(Stream.PROMPTS, "worker", 8, WAIT)
    readers = [asyncio.create_task(lane.process().read(Stream.COMPLETIONS, f"r{n}", 1, WAIT)) for n in range(4)]
    await asyncio.sleep(0)
    movers = [
        asyncio.create_task(streams.hand_over(Stream.PROMPTS, d.entry_id, Stream.COMPLETIONS, d.payload)) for d in held
    ]
    for turn in range(200):
        assert (await streams.ledger()).balances, f"in turn {turn}"
        movers[turn % len(movers)].cancel()
        await asyncio.sleep(0)
        if all(task.done() for task in movers):
            break
    for task in readers:
        task.cancel()
    await asyncio.gather(*movers, *readers, return_exceptions=True)
    assert await streams.ledger() == Ledger(admitted=8, trained=0, in_flight=8)
