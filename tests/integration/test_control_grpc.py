"""Both ends of control's gRPC over a real socket: the agents' client against control's server."""

import asyncio
import contextlib
import json

import grpc
import pytest

from pacs.local.ports import free_port
from pacs.pb import control_pb2 as pb
from pacs.pb.control_pb2_grpc import ControlStub
from pacs.runtime import agent as agent_module
from pacs.runtime.agent import AgentClient
from pacs.runtime.grpc_auth import bearer_metadata
from pacs.testing import assert_eventually
from services.control.grpc_api import serve_grpc
from services.control.run_state import Phase
from tests.control_fakes import TENSORS, Control, logprobs, publish_request

pytestmark = [pytest.mark.anyio, pytest.mark.redis]


@contextlib.asynccontextmanager
async def serving(control, address):
    server = await serve_grpc(control.handler, control.agents, "sesame", address)
    try:
        yield
    finally:
        await server.stop(0)


@contextlib.asynccontextmanager
async def client(address, agent_id, handle, token="sesame", **more):
    stop = asyncio.Event()
    agent = AgentClient(address, token, agent_id, agent_id.split("-")[0], 0.02, handle, **more)
    running = asyncio.create_task(agent.run(stop))
    try:
        yield agent
    finally:
        stop.set()
        async with asyncio.timeout(10):
            await running


async def sound(command):
    match command.WhichOneof("command"):
        case "open_communicator":
            return pb.CommandResult(address="here:1")
        case "transfer_weights":
            return pb.CommandResult(digests=[t.name for t in command.transfer_weights.tensors])
        case "probe":
            return pb.CommandResult(probe_logprobs=logprobs(-1.0))
    return pb.CommandResult()


@pytest.fixture
def address():
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
async def control(redis_client, address, monkeypatch):
    monkeypatch.setattr(agent_module, "RECONNECT_SECONDS", 0.05)
    control = Control(redis_client)
    async with serving(control, address):
        yield control


async def publish(address, token="sesame", request=None):
    async with grpc.aio.insecure_channel(address) as channel:
        metadata = bearer_metadata(token) if token else ()
        return await ControlStub(channel).Publish(request or publish_request(), metadata=metadata, timeout=20)


@pytest.mark.parametrize("token", ["", "guess"])
async def test_without_the_token_nothing_is_done(control, address, token):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await publish(address, token)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    async with grpc.aio.insecure_channel(address) as channel:

        async def events():
            yield pb.AgentEvent(hello=pb.Hello(agent_id="rollout-0", role="rollout"))

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in ControlStub(channel).Attach(events(), metadata=(("authorization", f"Bearer {token}"),)):
                pytest.fail("a command was sent to a stranger")
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert control.agents.all() == []


async def test_an_agent_must_say_who_it_is_first(control, address):
    async with grpc.aio.insecure_channel(address) as channel:

        async def events():
            yield pb.AgentEvent(heartbeat=pb.Heartbeat())

        with pytest.raises(grpc.aio.AioRpcError) as caught:
            async for _ in ControlStub(channel).Attach(events(), metadata=bearer_metadata("sesame")):
                pass
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_publication_over_the_wire(control, address):
    async with client(address, "learner-0", sound), client(address, "rollout-0", sound):
        reply = await publish(address)
    assert (reply.policy_version, reply.max_logprob_gap) == (1, 0.0)
    assert set(reply.phase_seconds) == {"pause", "connect", "transfer", "verify", "resume"}
    assert await control.state.phase() is Phase.RUNNING


async def test_the_engines_own_words_reach_the_learner(control, address):
    async def broken(command):
        if command.WhichOneof("command") == "transfer_weights":
            assert [t.name for t in command.transfer_weights.tensors] == [t.name for t in TENSORS]
            raise MemoryError("KV cache does not fit")
        return await sound(command)

    async with client(address, "learner-0", sound), client(address, "rollout-0", broken):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await publish(address)
    assert caught.value.code() is grpc.StatusCode.ABORTED
    assert caught.value.details() == (
        "publication failed in phase transfer at rollout-0: MemoryError: KV cache does not fit"
    )


async def test_heartbeats_go_on_while_a_command_runs(control, address):
    """The health plane never waits behind the data plane."""
    busy, done, heard = asyncio.Event(), asyncio.Event(), []

    async def slow(_command):
        busy.set()
        await done.wait()
        return pb.CommandResult()

    more = {"waiting_for": lambda: f"beat {len(heard)}", "gauges": lambda: {"tokens": 3.0}}
    async with client(address, "rollout-0", slow, **more):
        await assert_eventually(control.agents.all)
        (agent,) = control.agents.all()
        request = asyncio.create_task(agent.request(pb.Command(pause=pb.Pause()), 10))
        await busy.wait()
        for beat in (1, 2):
            heard.append(beat)
            await assert_eventually(lambda: agent.waiting_for == f"beat {len(heard)}")
        assert agent.gauges == {"tokens": 3.0}
        assert not request.done()
        done.set()
        await request


async def test_steps_and_the_end_are_told(control, address):
    async with client(address, "learner-0", sound) as learner:
        learner.send(pb.AgentEvent(step=pb.StepReport(step=4, figures_json=json.dumps({"loss": 0.5}))))
        learner.send(pb.AgentEvent(finished=pb.Finished(step=4)))

        async def finished():
            return await control.state.phase() is Phase.FINISHED

        await assert_eventually(finished)
    (entry,) = await control.handler.history(0)
    assert (entry["kind"], entry["step"], entry["loss"]) == ("step", 4, 0.5)


async def test_an_agent_that_leaves_is_gone_and_one_that_comes_back_is_there(control, address):
    for _ in range(2):
        async with client(address, "rollout-0", sound):
            await assert_eventually(lambda: [a.agent_id for a in control.agents.all()] == ["rollout-0"])
        await assert_eventually(lambda: not control.agents.all())


async def test_agents_outlive_a_control_that_is_killed_and_started_again(redis_client, address, monkeypatch):
    monkeypatch.setattr(agent_module, "RECONNECT_SECONDS", 0.05)
    async with (
        client(address, "learner-0", sound, policy_version=lambda: 1),
        client(address, "rollout-0", sound, policy_version=lambda: 1),
    ):
        for life in (1, 2):
            control = Control(redis_client)
            await control.state.set_phase(Phase.STARTING)  # as at every start of control
            async with serving(control, address):
                await assert_eventually(lambda control=control: len(control.agents.all()) == 2)
                if life == 1:
                    await publish(address)

                async def running(control=control):
                    return await control.state.phase() is Phase.RUNNING

                await assert_eventually(running)
                replica = control.agents.of_role("rollout")[0]
                await assert_eventually(lambda replica=replica: replica.ready_version == 1)
                assert (await publish(address, request=publish_request(step=life))).policy_version == life + 1
