"""What is Redis' own: refusing a server that loses groups, keys, lanes side by side, a restart of the server."""

import pytest

from pacs.errors import BadInput
from pacs.testing import embedded_redis
from pacs.transport.interface import Lane, Ledger, Stream
from pacs.transport.redis_streams import RedisStreams, check_server
from tests.stream_lanes import WAIT, admitted, take_one

pytestmark = [pytest.mark.anyio, pytest.mark.redis]


async def test_a_server_that_keeps_groups_is_accepted(redis_client):
    await check_server(redis_client)


@pytest.mark.parametrize(
    ("setting", "bad", "good"),
    [("maxmemory-policy", "allkeys-lru", "noeviction"), ("appendonly", "no", "yes")],
)
async def test_a_server_that_could_lose_groups_is_refused(redis_client, setting, bad, good):
    await redis_client.config_set(setting, bad)
    try:
        with pytest.raises(BadInput, match=rf"{setting} .*{good}"):
            await check_server(redis_client)
    finally:
        await redis_client.config_set(setting, good)


class OldServer:
    async def info(self, _section):
        return {"redis_version": "6.0.16"}


async def test_a_server_without_xautoclaim_is_refused():
    with pytest.raises(BadInput, match=r"at least 6\.2.*6\.0\.16"):
        await check_server(OldServer())


async def test_lanes_and_runs_share_a_server_and_nothing_else(redis_client):
    lanes = [
        RedisStreams(redis_client, "a"),
        RedisStreams(redis_client, "a", Lane.EVALUATION),
        RedisStreams(redis_client, "b"),
    ]
    for number, streams in enumerate(lanes, start=1):
        await streams.prepare()
        await admitted(streams, number)
    assert [(await streams.ledger()).admitted for streams in lanes] == [1, 2, 3]
    keys = {streams.key(stream) for streams in lanes for stream in Stream} | {s.ledger_key for s in lanes}
    assert len(keys) == 15
    assert lanes[0].key(Stream.PROMPTS) == "{a}:prompts"
    assert all(key.startswith(("{a}:", "{b}:")) for key in keys)  # the hash tag: one slot of a Redis Cluster


async def test_preparing_again_keeps_what_is_there(redis_client):
    streams = RedisStreams(redis_client, "run")
    await streams.prepare()
    await admitted(streams, 2)
    await take_one(streams, "worker")
    await RedisStreams(redis_client, "run").prepare()
    assert (await streams.ledger()).in_flight == 2
    assert len(await streams.reclaim(Stream.PROMPTS, "worker")) == 1


async def test_reclaim_finds_more_than_one_page(redis_client):
    streams = RedisStreams(redis_client, "run")
    await streams.prepare()
    await admitted(streams, 300)
    held = await streams.read(Stream.PROMPTS, "worker", 300, WAIT)
    assert len(held) == 300
    again = await streams.reclaim(Stream.PROMPTS, "worker")
    assert [d.entry_id for d in again] == [d.entry_id for d in held]
    assert {d.deliveries for d in again} == {2}


async def test_the_dead_letter_says_why_and_whence(redis_client):
    streams = RedisStreams(redis_client, "run")
    await streams.prepare()
    await admitted(streams, 1)
    await streams.dead_letter(Stream.PROMPTS, await take_one(streams, "worker"), "poison")
    ((_, fields),) = await redis_client.xrange(streams.key(Stream.DEAD))
    assert fields == {b"payload": b"prompt 0", b"reason": b"poison", b"stream": b"{run}:prompts"}


async def test_a_killed_server_comes_back_with_every_group_in_its_place(tmp_path):
    from redis.asyncio import Redis

    with embedded_redis(tmp_path) as server:
        client = Redis.from_url(server.url)
        streams = RedisStreams(client, "run")
        await streams.prepare()
        await admitted(streams, 3)
        moved = await take_one(streams, "worker")
        await streams.hand_over(Stream.PROMPTS, moved.entry_id, Stream.COMPLETIONS, b"group 0", 5)
        held = await take_one(streams, "worker")
        await client.execute_command("WAITAOF", 1, 0, 10_000)
        await client.aclose()
        server.process.kill()
        server.process.wait()
    with embedded_redis(tmp_path) as server:
        client = Redis.from_url(server.url)
        streams = RedisStreams(client, "run")
        await streams.prepare()
        assert await streams.ledger() == Ledger(admitted=3, trained=0, in_flight=3, tokens_generated=5)
        assert [d.payload for d in await streams.reclaim(Stream.PROMPTS, "worker")] == [held.payload]
        assert [d.payload for d in await streams.read(Stream.COMPLETIONS, "verifier", 5, WAIT)] == [b"group 0"]
        assert not await streams.admit(2, b"again")
        await client.aclose()
