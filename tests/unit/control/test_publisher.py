"""One version made live, with agents that answer by script: what can go wrong, and what is left behind."""

import asyncio
import time

import numpy as np
import pytest

from pacs.errors import DeadlineExceeded, PublicationFailed
from pacs.pb import control_pb2 as pb
from pacs.testing import make_config
from pacs.transport.manifest import joined_digest
from services.control.agents import AgentRegistry
from services.control.publication import Publisher
from tests.control_fakes import NEVER, PROBE, TENSORS, attached, logprobs

pytestmark = pytest.mark.anyio

ALL = ("learner-0", "rollout-0", "rollout-1")
OPENING = ["open_communicator"]
CONNECT, TRANSFER = ["join_communicator"], ["transfer_weights"]


def make_publisher(agents, **overrides):
    settings = {"publication.phase_seconds": 5.0, **overrides}
    return Publisher(make_config(settings), agents, PROBE)


async def fails(publisher, version=1):
    with pytest.raises(PublicationFailed) as caught:
        await publisher.publish(version, TENSORS)
    return caught.value


async def test_the_phases_come_in_order_on_every_participant():
    agents, log = AgentRegistry(), []
    async with attached(agents, *ALL, log=log) as fakes:
        done = await make_publisher(agents).publish(1, TENSORS)
        assert fakes["learner-0"].names() == [*OPENING, *CONNECT, *TRANSFER, "probe"]
        for replica in ALL[1:]:
            assert fakes[replica].names() == ["pause", *CONNECT, *TRANSFER, "probe", "resume"]
            assert (fakes[replica].agent.ready_version, fakes[replica].agent.fenced_error) == (1, "")
    order = [name for _, name in log]
    assert order == [*["pause"] * 2, *OPENING, *CONNECT * 3, *TRANSFER * 3, *["probe"] * 3, *["resume"] * 2]
    assert list(done.phase_seconds) == ["pause", "connect", "transfer", "verify", "resume"]
    assert (done.policy_version, done.max_logprob_gap) == (1, 0.0)


async def test_what_arrived_is_told_in_one_digest_whatever_the_order_of_its_tensors():
    agents, said = AgentRegistry(), []
    async with attached(agents, *ALL):
        for tensors in (TENSORS, TENSORS[::-1], TENSORS[:1]):
            said.append((await make_publisher(agents).publish(1, tensors)).weights)
    assert said[0] == said[1] == joined_digest({t.name: f"digest of {t.name}" for t in TENSORS})
    assert said[0] != said[2] != joined_digest({})


async def test_a_learner_that_tells_too_few_digests_is_named():
    agents = AgentRegistry()
    few = {"transfer_weights": pb.CommandResult(digests=["digest of embed"])}
    async with attached(agents, *ALL, scripts=dict.fromkeys(ALL, few)):
        failure = await fails(make_publisher(agents))
    assert "at learner-0" in str(failure)
    assert "a digest for each of 2 tensors, got 1" in str(failure)


@pytest.mark.parametrize("adapters", [None, pb.Adapters(rank=8, alpha=16.0, base="f1")])
async def test_what_the_tensors_are_reaches_both_sides(adapters):
    agents = AgentRegistry()
    async with attached(agents, *ALL) as fakes:
        await make_publisher(agents).publish(1, TENSORS, adapters)
        transfers = [fakes[name].heard[2].transfer_weights for name in ALL]
        assert [t.HasField("adapters") for t in transfers] == [adapters is not None] * 3
        assert all(t.adapters == (adapters or pb.Adapters()) for t in transfers)


async def test_everybody_gets_a_rank_and_the_same_figures():
    agents = AgentRegistry()
    async with attached(agents, *ALL) as fakes:
        await make_publisher(agents).publish(3, TENSORS)
        joins = [fakes[name].heard[1].join_communicator for name in ALL]
        assert [join.rank for join in joins] == [0, 1, 2]
        assert {(join.address, join.world_size, join.timeout_seconds) for join in joins} == {("learner:1", 3, 5.0)}
        transfers = [fakes[name].heard[2].transfer_weights for name in ALL]
        assert {(t.policy_version, t.bucket_bytes) for t in transfers} == {(3, 64 * 2**20)}
        assert all([m.name for m in t.tensors] == ["embed", "head"] for t in transfers)
        assert fakes["rollout-0"].heard[-1].resume.policy_version == 3
        assert np.frombuffer(fakes["rollout-0"].heard[3].probe.token_ids, "<i4").tolist() == PROBE.tolist()


async def test_the_communicator_is_kept_while_membership_stays_and_rebuilt_when_it_changes():
    agents = AgentRegistry()
    publisher = make_publisher(agents)
    async with attached(agents, "learner-0", "rollout-0") as fakes:
        learner = fakes["learner-0"]
        await publisher.publish(1, TENSORS)
        await publisher.publish(2, TENSORS)
        assert learner.names().count("open_communicator") == 1
        async with attached(agents, "rollout-1"):
            await publisher.publish(3, TENSORS)
            assert learner.names().count("open_communicator") == 2
            assert learner.heard[-3].join_communicator.world_size == 3
        async with attached(agents, "rollout-0"):  # a new process under the old name
            await publisher.publish(4, TENSORS)
        assert learner.names().count("open_communicator") == 3


async def test_after_a_failure_the_next_attempt_builds_a_fresh_communicator():
    agents = AgentRegistry()
    publisher = make_publisher(agents)
    async with attached(agents, "learner-0", "rollout-0") as fakes:
        await publisher.publish(1, TENSORS)
        fakes["rollout-0"].script["transfer_weights"] = "connection reset"
        await fails(publisher, 2)
        del fakes["rollout-0"].script["transfer_weights"]
        await publisher.publish(2, TENSORS)
        assert fakes["learner-0"].names().count("open_communicator") == 2
        assert fakes["rollout-0"].agent.fenced_error == ""


@pytest.mark.parametrize(
    ("digests", "named"),
    [(["digest of embed", "other"], "head"), (["digest of embed"], "1 digests"), ([], "0 digests")],
)
async def test_weights_that_arrived_different_fail_and_name_the_tensor(digests, named):
    agents = AgentRegistry()
    scripts = {"rollout-1": {"transfer_weights": pb.CommandResult(digests=digests)}}
    async with attached(agents, *ALL, scripts=scripts) as fakes:
        failure = await fails(make_publisher(agents))
        assert (failure.phase, failure.agent_id) == ("transfer", "rollout-1")
        assert named in failure.reason
        for replica in ALL[1:]:
            assert "resume" not in fakes[replica].names(), "nobody goes on with weights that are in doubt"
            assert "probe" not in fakes[replica].names()


@pytest.mark.parametrize(
    ("measured", "named"),
    [((-1.0, -2.25), "difference of 0.25"), ((float("nan"), -2.0), "nan"), ((-1.0,), "nan"), ((), "nan")],
)
async def test_an_engine_that_computes_something_else_fails_though_every_digest_is_right(measured, named):
    agents = AgentRegistry()
    scripts = {"rollout-0": {"probe": pb.CommandResult(probe_logprobs=logprobs(*measured))}}
    async with attached(agents, *ALL, scripts=scripts) as fakes:
        failure = await fails(make_publisher(agents))
        assert (failure.phase, failure.agent_id) == ("verify", "rollout-0")
        assert named in failure.reason
        assert "0.0001 nats" in failure.reason
        assert "resume" not in fakes["rollout-1"].names()


async def test_a_learner_whose_probe_is_not_finite_fails_too():
    agents = AgentRegistry()
    scripts = {"learner-0": {"probe": pb.CommandResult(probe_logprobs=logprobs(float("nan"), -2.0))}}
    async with attached(agents, *ALL, scripts=scripts):
        assert (await fails(make_publisher(agents))).phase == "verify"


async def test_a_gap_within_the_tolerance_is_reported():
    agents = AgentRegistry()
    scripts = {
        "rollout-0": {"probe": pb.CommandResult(probe_logprobs=logprobs(-1.0, -2.1))},
        "rollout-1": {"probe": pb.CommandResult(probe_logprobs=logprobs(-1.25, -2.0))},
    }
    async with attached(agents, *ALL, scripts=scripts):
        done = await make_publisher(agents, **{"publication.max_logprob_gap": 0.3}).publish(1, TENSORS)
    assert done.max_logprob_gap == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("agent", "command", "phase"),
    [
        ("rollout-1", "pause", "pause"),
        ("learner-0", "open_communicator", "connect"),
        ("rollout-0", "join_communicator", "connect"),
        ("learner-0", "transfer_weights", "transfer"),
        ("rollout-0", "transfer_weights", "transfer"),
        ("learner-0", "probe", "verify"),
        ("rollout-1", "resume", "resume"),
    ],
)
async def test_an_error_carries_phase_agent_and_its_own_text_and_fences_the_replicas(agent, command, phase):
    agents = AgentRegistry()
    async with attached(agents, *ALL, scripts={agent: {command: "RuntimeError: disk on fire"}}) as fakes:
        for replica in ALL[1:]:
            fakes[replica].agent.ready_version = 4
        failure = await fails(make_publisher(agents), 5)
        assert (failure.phase, failure.agent_id, failure.reason) == (phase, agent, "RuntimeError: disk on fire")
        assert str(failure) == f"publication failed in phase {phase} at {agent}: RuntimeError: disk on fire"
        for replica in ALL[1:]:
            assert fakes[replica].agent.ready_version == 0
            assert "disk on fire" in fakes[replica].agent.fenced_error


@pytest.mark.parametrize(("agent", "command"), [("rollout-1", "transfer_weights"), ("learner-0", "probe")])
async def test_an_agent_that_never_answers_is_named_within_the_deadline(agent, command):
    agents = AgentRegistry()
    async with attached(agents, *ALL, scripts={agent: {command: NEVER}}):
        began = time.monotonic()
        failure = await fails(make_publisher(agents, **{"publication.phase_seconds": 0.05}))
        assert time.monotonic() - began < 5
        assert failure.agent_id == agent
        assert failure.reason == f"waited 0.05 s for {agent} to answer {command}, in vain"


async def test_the_first_failure_is_told_at_once_though_another_never_answers():
    agents = AgentRegistry()
    scripts = {"learner-0": {"transfer_weights": NEVER}, "rollout-0": {"transfer_weights": "no memory"}}
    async with attached(agents, *ALL, scripts=scripts), asyncio.timeout(4):  # less than the phase's deadline
        assert (await fails(make_publisher(agents))).reason == "no memory"


async def test_a_replica_that_dies_meanwhile_fails_the_phase():
    agents = AgentRegistry()

    def die(_command):
        agents.detach(dying.agent)
        return NEVER

    scripts = {"rollout-1": {"transfer_weights": die}}
    async with attached(agents, *ALL, scripts=scripts) as fakes:
        dying = fakes["rollout-1"]
        failure = await fails(make_publisher(agents))
        assert (failure.agent_id, failure.reason) == ("rollout-1", "rollout-1 went away")
        again = await make_publisher(agents).publish(1, TENSORS)
        assert again.policy_version == 1, "the others go on without it"


async def test_without_anybody_to_publish_to_the_wait_has_a_deadline():
    agents = AgentRegistry()
    publisher = make_publisher(agents, **{"publication.phase_seconds": 0.02, "rollout.start_seconds": 0.02})
    with pytest.raises(DeadlineExceeded, match="a learner to attach"):
        await publisher.publish(1, TENSORS)
    async with attached(agents, "learner-0"):
        with pytest.raises(DeadlineExceeded, match="a rollout to attach"):
            await publisher.publish(1, TENSORS)
