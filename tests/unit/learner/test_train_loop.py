"""The training thread over a scripted line to Redis and control: order of acts, resuming, acknowledging, stopping."""

import json
from concurrent.futures import Future

import pytest
from prometheus_client import CollectorRegistry

from pacs.errors import DeadlineExceeded, ServiceFailed
from pacs.pb import control_pb2 as pb
from pacs.testing import make_config, make_labeled_group
from pacs.transport.interface import Delivery
from pacs.transport.manifest import TensorMeta
from pacs.wire.groups import decode_prompt, encode_labeled_group
from services.learner import loop as loop_module
from services.learner.checkpoints import Checkpoints
from services.learner.handler import LearnerHandler
from services.learner.link import CommandCame, GroupCame, LinkBroke, PublicationEnded, StopAsked
from services.learner.loop import TrainLoop
from services.learner.metrics import LearnerMetrics
from services.learner.testing import FakeTrainingEngine


class Killed(BaseException):
    """The process died here."""


class ScriptedLink:
    """Gives out what `script` holds, and writes into `log` what the loop asks of it, in order."""

    def __init__(self, script, log, refuse=0):
        self.script = list(script)
        self.log = log
        self.refuse = refuse  # publications that fail first
        self.version = 0
        self.version_steps = {}
        self.epochs = []
        self.room = 0
        self.waiting_for = ""
        self.reports = []
        self.answers = []

    def start(self):
        self.log.append("start")

    def next_event(self, _timeout_seconds):
        if self.answers:
            return self.answers.pop(0)
        if not self.script:
            self.script = [StopAsked("the script is over")]
        event = self.script.pop(0)
        if isinstance(event, BaseException):
            raise event
        self.room += isinstance(event, GroupCame)
        return event

    def publish(self, request, deadline_seconds):
        assert deadline_seconds > 0
        self.log.append(f"publish step {request.step} groups {request.groups_trained}")
        if self.refuse:
            self.refuse -= 1
            self.answers.append(PublicationEnded(None, "ABORTED: no memory"))
            return
        self.version += 1
        self.epochs.append(request.reference_epoch)
        self.version_steps[self.version] = request.step
        reply = pb.PublishReply(policy_version=self.version, version_steps=self.version_steps)
        self.answers.append(PublicationEnded(reply, ""))

    def acknowledge_trained(self, entry_ids):
        self.log.append(f"acknowledge {' '.join(entry_ids)}")

    def admit_again(self, entry_id, prompt, reason):
        prompt = decode_prompt(prompt)
        self.log.append(f"{reason} {entry_id}: admit {prompt.sequence} again at version {prompt.policy_version}")

    def dead_letter(self, delivery, reason):
        self.log.append(f"dead letter {delivery.entry_id} {reason}")

    def taken(self, groups):
        self.room -= groups

    def report_step(self, step, figures_json):
        self.reports.append({"step": step, **json.loads(figures_json)})
        self.log.append(f"report {step}")

    def report_finished(self, step):
        self.log.append(f"finished {step}")

    def ask_to_stop(self, reason):
        self.script.insert(0, StopAsked(reason))


class Sender:
    """The learner's part in a publication, without torch."""

    def __init__(self, log):
        self.log = log

    def manifest(self):
        return [TensorMeta("logits", "float32", (64,))]

    def adapters_message(self):
        return None

    def carry_out(self, command):
        name = command.WhichOneof("command")
        self.log.append(f"carry out {name}")
        if name == "probe":
            raise ServiceFailed("no probe today")
        return pb.CommandResult(address="here:1")


def came(*sequences, version=None, name="{}-0"):
    """Groups of two a batch, each sampled by the version that is live when its batch is due, or by `version`."""
    return [
        GroupCame(
            Delivery(
                name.format(n),
                encode_labeled_group(make_labeled_group(n, (1, 0), policy_version=version or n // 2 + 1)),
                1,
            )
        )
        for n in sequences
    ]


class Learner:
    """One life of the process; what survives it is in `directory`, and in the control of the life it comes `after`."""

    def __init__(self, directory, script, refuse=0, after=None, **overrides):
        settings = {"run.max_steps": 3, "run.groups_per_step": 2, "learner.checkpoint_every_steps": 1, **overrides}
        config = make_config({key.replace("__", "."): value for key, value in settings.items()})
        self.log = []
        self.link = ScriptedLink(script, self.log, refuse)
        if after is not None:
            self.link.version, self.link.version_steps = after.link.version, dict(after.link.version_steps)
        self.engine = FakeTrainingEngine()
        self.engine.calls = self.log
        self.checkpoints = Checkpoints(directory / "checkpoints", config.learner.keep_checkpoints)
        self.loop = TrainLoop(
            config,
            self.engine,
            LearnerHandler(config, self.engine),
            self.link,
            Sender(self.log),
            self.checkpoints,
            LearnerMetrics(CollectorRegistry(), "test", 1),
            lambda: self.log.append("export"),
        )

    def acts(self, *words):
        """The log without the engine's passes; only lines that begin with one of `words`, if any are given."""
        passes = ("logprobs", "backward", "step", "take", "reference")
        return [line for line in self.log if (line.startswith(words) if words else not line.startswith(passes))]

    def run(self):
        self.loop.run()
        return self


def test_a_run_from_beginning_to_end(tmp_path):
    learner = Learner(tmp_path, came(*range(6))).run()
    assert learner.acts() == [
        "start",
        "publish step 0 groups 0",
        *("save", "acknowledge 0-0 1-0", "publish step 1 groups 2", "report 1"),
        *("save", "acknowledge 2-0 3-0", "publish step 2 groups 4", "report 2"),
        *("save", "acknowledge 4-0 5-0", "publish step 3 groups 6", "report 3"),
        "export",
        "finished 3",
    ]
    assert learner.link.room == 0
    assert [report["policy_version"] for report in learner.link.reports] == [2, 3, 4]


def test_groups_are_acknowledged_only_once_a_checkpoint_holds_them(tmp_path):
    learner = Learner(tmp_path, came(*range(6)), learner__checkpoint_every_steps=2).run()
    assert learner.acts("save", "acknowledge", "report") == [
        "report 1",
        "save",
        "acknowledge 0-0 1-0 2-0 3-0",
        "report 2",
        "report 3",
        "save",
        "acknowledge 4-0 5-0",
    ]


def test_a_checkpoint_that_cannot_be_written_acknowledges_nothing(tmp_path):
    learner = Learner(tmp_path, came(0, 1))

    def disk_full(_directory):
        raise OSError("No space left on device")

    learner.engine.save = disk_full
    with pytest.raises(OSError, match="No space left"):
        learner.run()
    assert learner.acts("acknowledge") == []


def test_the_last_checkpoint_is_not_written_twice(tmp_path):
    """To write it again would mean to remove, for a moment, the one on whose word groups were acknowledged."""
    learner = Learner(tmp_path, came(0, 1), run__max_steps=1).run()
    assert learner.log.count("save") == 1


def test_a_resumed_run_publishes_first_and_trains_each_group_once(tmp_path):
    """Killed after the checkpoint, before the acknowledgement; Redis gives the groups out again."""
    first = Learner(tmp_path, came(*range(4)), run__max_steps=3)

    def killed(entry_ids):
        if "2-0" in entry_ids:
            raise Killed
        ScriptedLink.acknowledge_trained(first.link, entry_ids)

    first.link.acknowledge_trained = killed
    with pytest.raises(Killed):
        first.run()
    assert first.acts("save", "acknowledge") == ["save", "acknowledge 0-0 1-0", "save"]

    second = Learner(tmp_path, came(2, 3, 4, 5), after=first).run()
    assert second.log[:3] == ["load", "start", "publish step 2 groups 4"]
    assert second.acts("acknowledge") == ["acknowledge 2-0", "acknowledge 3-0", "acknowledge 4-0 5-0"]
    assert [report["step"] for report in second.link.reports] == [3]
    assert second.log.count("step") == 1, "one batch was left to train on"
    assert second.link.room == 0


def test_what_was_trained_after_the_last_checkpoint_is_trained_again(tmp_path):
    killed = [*came(0, 1, 2, 3, 4, 5), Killed()]
    first = Learner(tmp_path, killed, learner__checkpoint_every_steps=2, run__max_steps=4)
    with pytest.raises(Killed):
        first.run()
    assert first.checkpoints.newest()[1].step == 2

    again = came(4, 5, 6, 7)
    second = Learner(tmp_path, again, after=first, learner__checkpoint_every_steps=2, run__max_steps=4).run()
    assert [report["step"] for report in second.link.reports] == [3, 4]
    assert second.acts("acknowledge") == ["acknowledge 4-0 5-0 6-0 7-0"]


def test_a_resumed_run_ends_where_an_unbroken_one_does(tmp_path):
    whole = Learner(tmp_path / "whole", came(*range(6))).run()
    broken = Learner(tmp_path / "broken", [*came(*range(4)), Killed()])
    with pytest.raises(Killed):
        broken.run()
    resumed = Learner(tmp_path / "broken", came(4, 5), after=broken).run()
    assert resumed.engine.logits.tobytes() == whole.engine.logits.tobytes()


def test_a_group_given_out_again_while_we_still_hold_it_is_neither_lost_nor_acknowledged_early(tmp_path):
    """Redis lets a consumer take over what it itself has held for longer than the claim deadline."""
    script = [*came(0, 0, 1), *came(0, 1), *came(2, 3), Killed()]
    learner = Learner(tmp_path, script, learner__checkpoint_every_steps=2, run__max_steps=4)
    with pytest.raises(Killed):
        learner.run()
    assert learner.acts("save", "acknowledge") == ["save", "acknowledge 0-0 1-0 2-0 3-0"]
    assert learner.link.room == 0, "its place in the pipeline is given back as often as it was taken"
    assert learner.checkpoints.newest()[1].groups_trained == 4


def test_the_groups_of_a_batch_are_ordered_by_admission(tmp_path):
    learner = Learner(tmp_path, came(3, 0), run__max_steps=1).run()
    assert learner.link.reports[0]["prompt_ids"] == ["problem-0", "problem-3"]


def test_bytes_that_are_no_group_are_set_aside_and_the_next_one_is_taken(tmp_path):
    broken = GroupCame(Delivery("9-0", b"\xff garbage", 1))
    learner = Learner(tmp_path, [broken, *came(0, 1)], run__max_steps=1).run()
    assert learner.acts("dead letter") == ["dead letter 9-0 undecodable"]
    assert learner.link.room == 0


def test_a_publication_is_tried_again_and_commands_are_carried_out_meanwhile(tmp_path):
    asked, probe = Future(), Future()
    commands = [
        CommandCame(pb.Command(open_communicator=pb.OpenCommunicator()), asked),
        CommandCame(pb.Command(probe=pb.Probe()), probe),
    ]
    learner = Learner(tmp_path, came(0, 1), refuse=2, run__max_steps=1)
    learner.link.answers = commands
    learner.run()
    assert learner.acts("publish", "carry")[:5] == [
        "publish step 0 groups 0",
        "carry out open_communicator",
        "carry out probe",
        "publish step 0 groups 0",
        "publish step 0 groups 0",
    ]
    assert asked.result(0).address == "here:1"
    with pytest.raises(ServiceFailed, match="no probe today"):
        probe.result(0)


def test_nobody_waiting_for_a_commands_result_any_more_is_no_fault(tmp_path):
    given_up = Future()
    given_up.cancel()
    learner = Learner(tmp_path, came(0, 1), run__max_steps=1)
    learner.link.answers = [CommandCame(pb.Command(open_communicator=pb.OpenCommunicator()), given_up)]
    assert learner.run().acts("carry") == []


def test_a_publication_that_keeps_failing_ends_the_run_with_its_reason(tmp_path):
    learner = Learner(tmp_path, [], refuse=9, publication__attempts=2)
    with pytest.raises(ServiceFailed, match=r"in 2 attempts; the last one: ABORTED: no memory"):
        learner.run()


def test_told_to_stop_it_saves_what_it_has_and_neither_exports_nor_finishes(tmp_path):
    script = [*came(0, 1, 2), StopAsked("enough"), *came(3)]
    learner = Learner(tmp_path, script, learner__checkpoint_every_steps=5).run()
    assert learner.acts()[-2:] == ["save", "acknowledge 0-0 1-0"]
    assert learner.acts("export", "finished") == []


def test_told_to_stop_before_the_first_batch_it_leaves_no_checkpoint(tmp_path):
    assert Learner(tmp_path, [StopAsked("at once")]).run().acts("save", "acknowledge") == []


def test_a_broken_line_ends_the_run_with_its_error(tmp_path):
    with pytest.raises(ServiceFailed, match="connection reset"):
        Learner(tmp_path, [*came(0), LinkBroke(OSError("connection reset"))]).run()


def test_a_batch_that_does_not_come_together_ends_the_run_and_says_what_is_missing(tmp_path, monkeypatch):
    clock = iter(range(0, 10_000, 400))
    monkeypatch.setattr(loop_module.time, "monotonic", lambda: float(next(clock)))
    with pytest.raises(DeadlineExceeded, match=r"waited 900 s for 1 of 2 labelled groups"):
        Learner(tmp_path, [*came(0), *[None] * 50]).run()


def test_the_line_tells_what_the_learner_waits_for(tmp_path):
    learner, seen = Learner(tmp_path, came(*range(6))), []
    next_event = learner.link.next_event
    learner.link.next_event = lambda seconds: (seen.append(learner.link.waiting_for), next_event(seconds))[1]
    learner.run()
    assert {"the publication of its weights", "2 of 2 labelled groups", "1 of 2 labelled groups"} <= set(seen)
    assert seen[-1] == ""  # the last batch is trained: it waits for nobody


def test_a_group_that_is_too_old_is_sampled_anew_and_waited_for(tmp_path):
    script = [*came(0, 1), *came(2, version=2), *came(3, version=1), *came(3, version=2, name="{}-1"), *came(4, 5)]
    learner = Learner(tmp_path, script, run__max_staleness=0).run()
    assert learner.acts("stale", "acknowledge") == [
        "acknowledge 0-0 1-0",
        "stale 3-0: admit 3 again at version 2",
        "acknowledge 2-0 3-1",
        "acknowledge 4-0 5-0",
    ]
    assert [report["staleness_max"] for report in learner.link.reports] == [0, 0, 0]
    assert learner.link.room == 0


def test_a_group_within_the_bound_is_trained_on(tmp_path):
    learner = Learner(tmp_path, came(*range(6), version=1), run__max_staleness=2).run()
    assert [report["staleness_max"] for report in learner.link.reports] == [0, 1, 2]


def test_one_version_more_for_the_same_weights_makes_no_group_older(tmp_path):
    first = Learner(tmp_path, came(0, 1), run__max_steps=1, run__max_staleness=0).run()
    second = Learner(tmp_path, came(2, 3, version=2), after=first, run__max_steps=2, run__max_staleness=0).run()
    assert second.link.version_steps == {1: 0, 2: 1, 3: 1, 4: 2}
    assert second.link.reports[0]["staleness_max"] == 0, "version 3 holds the weights of version 2"


def test_weights_that_were_lost_are_away_by_the_batches_they_were_ahead(tmp_path):
    """Killed after step 2, the checkpoint is of step 0: what version 3 sampled is trained on when its turn comes."""
    script = [*came(0, 1, version=1), *came(2, 3, version=2)]
    again = Learner(tmp_path, script, run__max_steps=2, run__max_staleness=0)
    again.link.version, again.link.version_steps = 3, {1: 0, 2: 1, 3: 2}
    again.run()
    assert [report["staleness_max"] for report in again.link.reports] == [0, 0]
    assert again.acts("stale") == []


def resetting(directory, script, **overrides):
    return Learner(directory, script, algorithm__reference="interval", reset__every_steps=2, **overrides)


def test_every_so_many_batches_the_reference_and_the_optimizer_begin_anew_once_that_is_durable(tmp_path):
    learner = resetting(tmp_path, came(*range(10)), run__max_steps=5, learner__checkpoint_every_steps=4).run()
    acts = [line for line in learner.log if line.startswith(("take", "reset", "save", "publish"))]
    assert acts == [
        "take reference",
        *("publish step 0 groups 0", "publish step 1 groups 2"),
        *("take reference", "reset warm_up=True", "save", "publish step 2 groups 4", "publish step 3 groups 6"),
        *("take reference", "reset warm_up=True", "save", "publish step 4 groups 8"),
        *("publish step 5 groups 10", "save"),
    ]
    assert learner.link.epochs == [0, 0, 1, 1, 2, 2]
    assert [report["reset"] for report in learner.link.reports] == ["", "interval", "", "interval", ""]
    assert learner.checkpoints.newest()[1].reference_epoch == 2


def test_a_reset_keeps_the_optimizer_if_told_so(tmp_path):
    learner = resetting(tmp_path, came(*range(6)), reset__optimizer=False).run()
    assert learner.acts("reset") == []
    assert learner.link.epochs == [0, 0, 1, 1]


@pytest.mark.parametrize("warm_up", [True, False])
def test_a_reset_warms_up_anew_only_if_told_so(tmp_path, warm_up):
    learner = resetting(tmp_path, came(*range(6)), reset__warm_up=warm_up).run()
    assert learner.acts("reset") == [f"reset warm_up={warm_up}"]


def test_a_run_killed_right_after_a_reset_does_not_do_it_twice(tmp_path):
    first = resetting(tmp_path, [*came(*range(4)), Killed()], run__max_steps=4)
    with pytest.raises(Killed):
        first.run()
    second = resetting(tmp_path, came(*range(4, 8)), after=first, run__max_steps=4).run()
    assert second.acts("reset") == [], "the one after step 2 is in the checkpoint; after the last step none follows"
    assert second.log[0] == "load"
    assert second.link.epochs == [1, 1, 1]


def test_a_reset_on_request_is_done_once_however_often_it_is_told(tmp_path):
    asked = pb.Command(reset=pb.Reset(reference_epoch=1, reason="by hand"))
    script = came(*range(8))
    for place in (1, 4, 8):
        script.insert(place, CommandCame(asked, Future()))
    learner = Learner(tmp_path, script, algorithm__reference="manual", run__max_steps=4).run()
    assert [report["reset"] for report in learner.link.reports] == ["by hand", "", "", ""]
    assert learner.link.epochs == [0, 1, 1, 1, 1]
