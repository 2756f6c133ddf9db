import asyncio

import pytest

from pacs.errors import DeadlineExceeded, ServiceFailed
from pacs.pb import control_pb2 as pb
from services.control.agents import AgentRegistry

pytestmark = pytest.mark.anyio


def pause():
    return pb.Command(pause=pb.Pause())


async def sent(agent):
    async with asyncio.timeout(5):
        return await agent.commands.get()


async def test_answers_reach_whoever_asked_whatever_their_order():
    agent = await AgentRegistry().attach("rollout-0", "rollout")
    requests = [asyncio.create_task(agent.request(pause(), 5)) for _ in range(3)]
    commands = [await sent(agent) for _ in range(3)]
    assert len({command.command_id for command in commands}) == 3
    for command in reversed(commands):
        agent.answer(pb.CommandResult(command_id=command.command_id, address=str(command.command_id)))
    answers = [await request for request in requests]
    assert [a.address for a in answers] == [str(c.command_id) for c in commands]


async def test_an_error_carries_the_agents_own_words():
    agent = await AgentRegistry().attach("rollout-0", "rollout")
    request = asyncio.create_task(agent.request(pause(), 5))
    command = await sent(agent)
    agent.answer(pb.CommandResult(command_id=command.command_id, error="EngineDead: out of memory"))
    with pytest.raises(ServiceFailed, match="EngineDead: out of memory"):
        await request


async def test_silence_ends_at_the_deadline_and_names_who_and_what():
    agent = await AgentRegistry().attach("rollout-0", "rollout")
    with pytest.raises(DeadlineExceeded, match=r"waited 0\.01 s for rollout-0 to answer pause"):
        await agent.request(pause(), 0.01)


async def test_a_late_answer_answers_nothing_else():
    agent = await AgentRegistry().attach("rollout-0", "rollout")
    with pytest.raises(DeadlineExceeded):
        await agent.request(pause(), 0.01)
    late = await sent(agent)
    request = asyncio.create_task(agent.request(pause(), 5))
    command = await sent(agent)
    agent.answer(pb.CommandResult(command_id=late.command_id, address="late"))
    agent.answer(pb.CommandResult(command_id=command.command_id, address="right"))
    assert (await request).address == "right"


async def test_an_answer_to_a_command_of_an_earlier_attachment_answers_nothing():
    """An agent that lost its stream while it worked sends the result over the next one, perhaps to a new control."""
    former = await AgentRegistry().attach("rollout-0", "rollout")
    request = asyncio.create_task(former.request(pause(), 0.01))
    command = await sent(former)
    with pytest.raises(DeadlineExceeded):
        await request
    again = await AgentRegistry().attach("rollout-0", "rollout")
    request = asyncio.create_task(again.request(pb.Command(open_communicator=pb.OpenCommunicator()), 5))
    opening = await sent(again)
    again.answer(pb.CommandResult(command_id=command.command_id))
    again.answer(pb.CommandResult(command_id=opening.command_id, address="host:1"))
    assert (await request).address == "host:1"


async def test_who_leaves_fails_those_who_wait():
    agents = AgentRegistry()
    agent = await agents.attach("rollout-0", "rollout")
    request = asyncio.create_task(agent.request(pause(), 5))
    await sent(agent)
    agents.detach(agent)
    with pytest.raises(ServiceFailed, match="rollout-0 went away"):
        await request
    assert agents.all() == []


async def test_an_agent_that_attaches_again_replaces_itself():
    agents = AgentRegistry()
    former = await agents.attach("rollout-0", "rollout")
    request = asyncio.create_task(former.request(pause(), 5))
    await sent(former)
    again = await agents.attach("rollout-0", "rollout")
    with pytest.raises(ServiceFailed, match="went away"):
        await request
    assert former.ended.is_set()
    agents.detach(former)  # its stream ends only now
    assert agents.all() == [again]


async def test_waiting_for_a_role_ends_when_one_attaches_or_at_the_deadline():
    agents = AgentRegistry()
    waiting = asyncio.create_task(agents.wait_for("learner", 5))
    await agents.attach("rollout-0", "rollout")
    learner = await agents.attach("learner-0", "learner")
    assert await waiting == [learner]
    with pytest.raises(DeadlineExceeded, match="a verifier to attach to control"):
        await agents.wait_for("verifier", 0.01)


async def test_agents_are_ordered_by_name_whenever_they_came():
    agents = AgentRegistry()
    for name in ("rollout-1", "learner-0", "rollout-0"):
        await agents.attach(name, name.split("-")[0])
    assert [a.agent_id for a in agents.of_role("rollout")] == ["rollout-0", "rollout-1"]


async def test_who_is_silent_for_too_long_counts_as_lost():
    agents = AgentRegistry()
    silent, alive = await agents.attach("rollout-0", "rollout"), await agents.attach("rollout-1", "rollout")
    silent.last_heard -= 31
    assert agents.drop_silent(30) == [silent]
    assert agents.all() == [alive]
    assert silent.ended.is_set()
    assert not alive.ended.is_set()
