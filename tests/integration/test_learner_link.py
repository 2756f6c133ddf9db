"""The learner's line with a real Redis and a real control: what the training thread sees of both."""

import asyncio
import threading

import pytest
from pydantic import SecretStr

from pacs.local.ports import free_port
from pacs.pb import control_pb2 as pb
from pacs.testing import assert_eventually, make_config, make_labeled_group
from pacs.transport.interface import Ledger, Stream
from pacs.transport.redis_streams import RedisStreams
from pacs.wire.groups import encode_labeled_group
from services.control.grpc_api import serve_grpc
from services.learner.link import CommandCame, GroupCame, LearnerLink, LinkBroke, PublicationEnded, StopAsked
from services.learner.settings import Settings
from tests.control_fakes import Control, attached, publish_request

pytestmark = [pytest.mark.anyio, pytest.mark.redis]


def make_link(redis_url, port=1, **overrides):
    config = make_config({"control.heartbeat_seconds": 0.05, **overrides})
    settings = Settings(
        config=config, redis_url=SecretStr(redis_url), token=SecretStr("sesame"), control_address=f"127.0.0.1:{port}"
    )
    return LearnerLink(settings, lambda: 0)


async def ended(link):
    await asyncio.to_thread(link.close)
    assert "link" not in {thread.name for thread in threading.enumerate()}


async def event(link, kind):
    """The next event, from the link's own thread."""
    found = await asyncio.to_thread(link.next_event, 10.0)
    assert isinstance(found, kind), found
    return found


@pytest.fixture
async def streams(redis_client):
    streams = RedisStreams(redis_client, "test")
    await streams.prepare()
    return streams


async def label(streams, *sequences):
    for sequence in sequences:
        await streams.admit(sequence, b"prompt")
        (delivery,) = await streams.read(Stream.PROMPTS, "w", 1, 5.0)
        payload = encode_labeled_group(make_labeled_group(sequence))
        await streams.hand_over(Stream.PROMPTS, delivery.entry_id, Stream.LABELED, payload)


async def test_groups_come_are_acknowledged_or_set_aside(redis_server, streams):
    link = make_link(redis_server.url)
    link.start()
    await label(streams, 0, 1)
    first, second = [(await event(link, GroupCame)).delivery for _ in range(2)]
    assert await asyncio.to_thread(link.acknowledge_trained, [first.entry_id]) == 1
    await asyncio.to_thread(link.dead_letter, second, "undecodable")
    assert await streams.ledger() == Ledger(2, 1, 0, {"undecodable": 1})
    await ended(link)


async def test_a_new_life_gets_what_the_former_did_not_acknowledge(redis_server, streams):
    await label(streams, 0, 1)
    for _life in range(2):
        link = make_link(redis_server.url)
        link.start()
        taken = [(await event(link, GroupCame)).delivery.payload for _ in range(2)]
        await ended(link)
    assert len(set(taken)) == 2
    assert (await streams.ledger()).in_flight == 2


async def test_no_more_is_read_ahead_than_the_pipeline_holds(redis_server, streams):
    link = make_link(redis_server.url, **{"run.max_staleness": 0, "run.groups_per_step": 2})
    await label(streams, 0, 1, 2)
    link.start()
    for _ in range(2):
        await event(link, GroupCame)
    assert await asyncio.to_thread(link.next_event, 0.1) is None
    link.taken(1)
    await event(link, GroupCame)
    await ended(link)


async def test_control_and_learner_over_the_line(redis_server, redis_client):
    control, port = Control(redis_client), free_port()
    server = await serve_grpc(control.handler, control.agents, "sesame", f"127.0.0.1:{port}")
    link = make_link(redis_server.url, port)
    link.start()
    async with attached(control.agents, "rollout-0"):
        link.publish(publish_request(), 20.0)
        for name in ("open_communicator", "join_communicator", "transfer_weights", "probe"):
            came = await event(link, CommandCame)
            assert came.command.WhichOneof("command") == name
            if name == "join_communicator":
                came.reply.set_exception(ValueError("wrong rank"))
                break
            came.reply.set_result(pb.CommandResult(address="here:1"))
        failed = await event(link, PublicationEnded)
    assert failed.reply is None
    assert "ABORTED: publication failed in phase connect at learner-0: ValueError: wrong rank" in failed.error
    (learner,) = control.agents.of_role("learner")
    link.waiting_for = "2 of 16 labelled groups"
    await assert_eventually(lambda: learner.waiting_for == "2 of 16 labelled groups")
    link.report_step(3, '{"loss": 0.5}')

    async def reported():
        return [e["step"] for e in await control.handler.history(0)] == [3]

    await assert_eventually(reported)
    await control.handler.stop("enough")
    assert (await event(link, StopAsked)).reason == "enough"
    await ended(link)
    await server.stop(0)


async def test_a_publication_that_nobody_answers_ends_at_its_deadline(redis_server, streams):
    link = make_link(redis_server.url, free_port())
    link.start()
    link.publish(publish_request(), 0.2)
    assert "DEADLINE_EXCEEDED" in (await event(link, PublicationEnded)).error
    await ended(link)


async def test_a_redis_that_is_away_breaks_the_line_and_closing_it_hides_nothing():
    link = make_link(f"redis://127.0.0.1:{free_port()}")
    link.start()
    await event(link, LinkBroke)
    await ended(link)


async def test_a_line_that_was_never_started_can_be_closed(redis_server):
    make_link(redis_server.url).close()
