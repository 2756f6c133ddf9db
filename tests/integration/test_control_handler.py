"""Control's decisions with its state in a real Redis: versions, phases, who must catch up, evaluations in between."""

import asyncio
import json

import pytest

from pacs.errors import BadInput, PublicationFailed
from pacs.pb import control_pb2 as pb
from pacs.testing import assert_eventually
from pacs.transport.interface import Stream
from services.control.run_state import Phase
from tests.control_fakes import Control, answering, attached, make_problems, publish_request

pytestmark = [pytest.mark.anyio, pytest.mark.redis]

BOTH = ("learner-0", "rollout-0")


def hello(agent, fresh=True, version=0):
    return pb.Hello(agent_id=agent.agent_id, role=agent.role, fresh=fresh, policy_version=version)


async def test_the_first_publication_opens_the_run_and_every_one_frees_slots(redis_client):
    control = Control(redis_client)
    async with attached(control.agents, *BOTH):
        assert await control.state.phase() is Phase.STARTING
        assert await control.admission.admit_what_fits() == 0
        done = await control.handler.publish(publish_request())
        assert done.policy_version == 1
        assert await control.state.phase() is Phase.RUNNING
        assert await control.admission.admit_what_fits() == 4
        await control.handler.publish(publish_request(step=1, groups_trained=2))
    assert [await control.state.policy_version(), await control.state.step(), await control.state.live_groups()] == (
        [2, 1, 2]
    )
    kinds = [(entry["kind"], entry["policy_version"]) for entry in await control.handler.history(0)]
    assert kinds == [("publication", 1), ("publication", 2)]
    assert await control.handler.history(1) == (await control.handler.history(0))[1:]


async def test_a_failed_publication_commits_nothing_and_the_next_takes_the_same_number(redis_client):
    control = Control(redis_client)
    async with attached(control.agents, *BOTH) as fakes:
        fakes["rollout-0"].script["transfer_weights"] = "no memory"
        with pytest.raises(PublicationFailed, match="no memory"):
            await control.handler.publish(publish_request())
        assert await control.state.policy_version() == 0
        assert await control.state.phase() is Phase.STARTING
        assert await control.handler.history(0) == []
        assert (await control.handler.overview())["agents"][1]["fenced_error"].endswith("no memory")
        del fakes["rollout-0"].script["transfer_weights"]
        assert (await control.handler.publish(publish_request())).policy_version == 1
    failed = control.registry.get_sample_value("pacs_weight_sync_total", {"run": "test", "result": "failed"})
    assert failed == 1.0


async def test_versions_never_go_back_when_control_is_started_again(redis_client):
    for version in (1, 2, 3):
        control = Control(redis_client)
        async with attached(control.agents, *BOTH):
            assert (await control.handler.publish(publish_request(step=version))).policy_version == version


async def test_publications_come_one_at_a_time(redis_client):
    control, log = Control(redis_client), []
    async with attached(control.agents, *BOTH, log=log):
        done = await asyncio.gather(*(control.handler.publish(publish_request(step=n)) for n in range(3)))
    assert sorted(p.policy_version for p in done) == [1, 2, 3]
    commands = [name for agent, name in log if agent == "rollout-0"]
    assert [name for name in commands if name in ("pause", "resume")] == ["pause", "resume"] * 3


@pytest.mark.parametrize(
    ("before", "fresh", "after"),
    [
        (Phase.RUNNING, True, Phase.STARTING),  # its slots cannot be counted before its first publication
        (Phase.STARTING, True, Phase.STARTING),
        (Phase.STARTING, False, Phase.RUNNING),  # it lived through our restart
        (Phase.PAUSED, True, Phase.PAUSED),
        (Phase.PAUSED, False, Phase.PAUSED),
        (Phase.FINISHED, True, Phase.FINISHED),
        (Phase.STOPPING, False, Phase.STOPPING),
    ],
)
async def test_what_an_attaching_learner_does_to_the_phase(redis_client, before, fresh, after):
    control = await Control(redis_client).run_phase(before)
    agent = await control.agents.attach("learner-0", "learner")
    await control.handler.learner_attached(agent, hello(agent, fresh, 0 if fresh else 3))
    assert await control.state.phase() is after


async def test_a_late_replica_is_brought_up_to_the_live_version(redis_client):
    control = Control(redis_client)
    async with attached(control.agents, *BOTH):
        await control.handler.publish(publish_request(step=4, groups_trained=8))
        async with attached(control.agents, "rollout-1") as late:
            replica = late["rollout-1"]
            await control.handler.replica_attached(replica.agent, hello(replica.agent))
            assert replica.agent.ready_version == 1
            assert replica.names()[-1] == "resume"
            assert replica.heard[-1].resume.policy_version == 1
    assert await control.state.policy_version() == 1, "it is the same version again"


async def test_a_replica_that_still_holds_the_live_version_is_left_alone(redis_client):
    control = Control(redis_client)
    async with attached(control.agents, *BOTH):
        await control.handler.publish(publish_request())
        async with attached(control.agents, "rollout-1") as others:
            replica = others["rollout-1"]
            await control.handler.replica_attached(replica.agent, hello(replica.agent, fresh=False, version=1))
            assert replica.heard == []
            assert replica.agent.ready_version == 1


async def test_before_the_first_publication_there_is_nothing_to_catch_up_with(redis_client):
    control = Control(redis_client)
    async with attached(control.agents, "rollout-0") as fakes:
        await control.handler.replica_attached(fakes["rollout-0"].agent, hello(fakes["rollout-0"].agent))
        assert fakes["rollout-0"].heard == []


async def test_pausing_stops_admission_and_only_a_running_run_can_be_paused(redis_client):
    control = Control(redis_client)
    await control.handler.set_paused(True)
    assert await control.state.phase() is Phase.STARTING
    await control.run_phase()
    await control.handler.set_paused(True)
    assert await control.state.phase() is Phase.PAUSED
    async with attached(control.agents, *BOTH):
        await control.handler.publish(publish_request())
    assert await control.state.phase() is Phase.PAUSED, "a publication does not undo it"
    await control.handler.set_paused(False)
    assert await control.state.phase() is Phase.RUNNING


async def test_stopping_tells_the_learner_and_a_finished_run_stays_finished(redis_client):
    control = await Control(redis_client).run_phase()
    learner = await control.agents.attach("learner-0", "learner")
    await control.handler.stop("enough")
    assert learner.commands.get_nowait().stop.reason == "enough"
    assert await control.state.phase() is Phase.STOPPING
    await control.handler.finish()
    await control.handler.stop("again")
    assert await control.state.phase() is Phase.FINISHED


async def test_steps_are_kept_for_people(redis_client):
    control = Control(redis_client)
    figures = {"accuracy": 0.5, "tokens_per_second": 9.0, "staleness_max": 1}
    await control.handler.step_done(pb.StepReport(step=3, figures_json=json.dumps(figures)))
    (entry,) = await control.handler.history(0)
    assert (entry["kind"], entry["step"], entry["accuracy"]) == ("step", 3, 0.5)
    overview = await control.handler.overview()
    assert (overview["train_accuracy"], overview["tokens_per_second"], overview["staleness_max"]) == (0.5, 9.0, 1)


async def test_the_evaluation_of_a_version_ends_before_the_next_is_made_live(redis_client):
    control = Control(redis_client, {"run.max_steps": 2}, make_problems(5, 2))
    async with attached(control.agents, *BOTH) as fakes:
        await control.handler.publish(publish_request(step=0))
        next_one = asyncio.create_task(control.handler.publish(publish_request(step=2, groups_trained=4)))
        await assert_eventually(lambda: control.handler._publishing.locked())
        assert (await control.handler.overview())["waiting_for"] == "the held-out evaluation"
        assert fakes["rollout-0"].names().count("pause") == 1, "nothing is published meanwhile"
        async with answering(control.evaluation, lambda prompt: (int(prompt.policy_version == 1),)):
            await next_one
            await control.handler.finish()
    evaluations = [e for e in await control.handler.history(0) if e["kind"] == "evaluation"]
    assert [(e["policy_version"], e["step"], e["accuracy"]) for e in evaluations] == [(1, 0, 1.0), (2, 2, 0.0)]
    assert await control.state.phase() is Phase.FINISHED


async def test_an_evaluation_that_does_not_end_is_told_at_the_next_publication_and_then_forgotten(redis_client):
    control = Control(redis_client, {"evaluation.wait_seconds": 0.05}, make_problems(5, 2))
    async with attached(control.agents, *BOTH):
        await control.handler.publish(publish_request(step=0))
        with pytest.raises(PublicationFailed, match=r"evaluation.*2 of 2 held-out groups"):
            await control.handler.publish(publish_request(step=1, groups_trained=2))
        assert (await control.handler.publish(publish_request(step=1, groups_trained=2))).policy_version == 2


async def test_admission_goes_on_by_itself_and_shows_the_ledger(redis_client):
    control = Control(redis_client)
    admitting = asyncio.create_task(control.handler.admit_forever())
    async with attached(control.agents, *BOTH):
        await control.handler.publish(publish_request())

        async def full():
            return (await control.training.queue_lengths())[Stream.PROMPTS] == control.config.capacity

        await assert_eventually(full)
        for delivery in await control.training.read(Stream.PROMPTS, "w", 1, 1.0):
            await control.training.drop(Stream.PROMPTS, delivery.entry_id, "invalid")

        def shown(**labels):
            return control.registry.get_sample_value("pacs_ledger_groups", {"run": "test", **labels})

        await assert_eventually(lambda: shown(fate="dropped_invalid") == 1.0 and shown(fate="admitted") == 5.0)
        balanced = control.registry.get_sample_value("pacs_ledger_balanced", {"run": "test"})
        assert balanced == 1.0
    admitting.cancel()


async def test_the_overview_says_what_is_waited_for(redis_client):
    control = Control(redis_client)
    assert (await control.handler.overview())["waiting_for"] == "a learner to attach"
    async with attached(control.agents, *BOTH) as fakes:
        fakes["learner-0"].agent.waiting_for = "2 of 16 labelled groups"
        overview = await control.handler.overview()
    assert overview["waiting_for"] == "learner-0: 2 of 16 labelled groups"
    assert [(a["agent_id"], a["role"], a["ready"]) for a in overview["agents"]] == (
        [("learner-0", "learner", True), ("rollout-0", "rollout", False)]
    )
    json.dumps(overview)


async def test_a_publication_says_what_is_behind_each_version(redis_client):
    control = Control(redis_client)
    async with attached(control.agents, *BOTH):
        await control.handler.publish(publish_request())
        await control.handler.publish(publish_request(step=1))
        done = await control.handler.publish(publish_request(step=1, reference_epoch=1))
    assert done.version_steps == {1: 0, 2: 1, 3: 1}
    assert await control.state.reference_epoch() == 1


async def test_a_reset_is_asked_for_until_a_version_of_its_epoch_is_live(redis_client):
    control = Control(redis_client, {"algorithm.reference": "manual"})
    async with attached(control.agents, *BOTH) as fakes:
        await control.handler.publish(publish_request())
        learner = fakes["learner-0"]
        assert [await control.handler.request_reset("by hand") for _ in range(2)] == [1, 1], "one reset, asked twice"
        await control.handler.learner_attached(learner.agent, hello(learner.agent))  # it was killed before it did it
        await assert_eventually(lambda: learner.names().count("reset") == 3)
        assert {(c.reset.reference_epoch, c.reset.reason) for c in learner.heard if c.HasField("reset")} == (
            {(1, "by hand")}
        )
        await control.handler.publish(publish_request(step=1, reference_epoch=1))
        await control.handler.learner_attached(learner.agent, hello(learner.agent))
        await control.handler.stop("enough")
        await assert_eventually(lambda: "stop" in learner.names())
        assert learner.names().count("reset") == 3, "it is done"
        assert await control.handler.request_reset("once more") == 2


async def test_a_reset_is_refused_where_no_reference_is_kept(redis_client):
    control = Control(redis_client)
    with pytest.raises(BadInput, match=r"got algorithm.reference=batch"):
        await control.handler.request_reset("by hand")


async def test_accuracy_that_stalls_asks_for_a_reset(redis_client):
    overrides = {"algorithm.reference": "stall", "reset.stall_evaluations": 2, "evaluation.every_steps": 1}
    control = Control(redis_client, overrides)
    wanted = []
    for accuracy, epoch in ((0.5, 0), (0.6, 0), (0.6, 0), (0.55, 0), (0.5, 1), (0.4, 1), (0.45, 1)):
        await control.state.commit_version(1, 1, 0, epoch)
        await control.handler._reset_if_stalled(accuracy)
        wanted.append((await control.state.wanted_reset())[0])
    assert wanted == [0, 0, 0, 1, 1, 1, 2], "the best of each epoch counts"
    assert "in 2 evaluations" in (await control.state.wanted_reset())[1]


async def test_a_late_replica_is_told_that_it_gets_adapters(redis_client):
    control = Control(redis_client)
    adapters = pb.Adapters(rank=8, alpha=16.0, base="f1")
    async with attached(control.agents, *BOTH):
        request = publish_request()
        request.adapters.CopyFrom(adapters)
        await control.handler.publish(request)
        async with attached(control.agents, "rollout-1") as late:
            await control.handler.replica_attached(late["rollout-1"].agent, hello(late["rollout-1"].agent))
            told = [
                c.transfer_weights for c in late["rollout-1"].heard if c.WhichOneof("command") == "transfer_weights"
            ]
    assert [t.adapters for t in told] == [adapters]
