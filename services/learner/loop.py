"""The training thread: batch after batch, one publication and now and then a checkpoint in between.

Waits for / is unblocked by
    * `_collect`: labelled groups / the verifier. Deadline: learner.batch_wait_seconds.
    * `_publish`: control / its transaction, whose commands this thread carries out meanwhile. Deadline: of its phases.
Both wait on the link's one queue of events.
"""

import contextlib
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from google.protobuf.message import DecodeError

from pacs.errors import DeadlineExceeded, PacsError, ServiceFailed
from pacs.pb import control_pb2 as pb
from pacs.runtime.config import RunConfig
from pacs.wire.groups import LabeledGroup, decode_labeled_group, encode_prompt
from services.learner.checkpoints import Checkpoints, CheckpointState
from services.learner.engine import TrainingEngine
from services.learner.handler import LearnerHandler
from services.learner.link import (
    CommandCame,
    Event,
    GroupCame,
    LearnerLink,
    LinkBroke,
    PublicationEnded,
    RankLost,
    StopAsked,
)
from services.learner.metrics import LearnerMetrics
from services.learner.publication import WeightSender, manifest_message
from services.learner.resets import ResetSchedule
from services.learner.staleness import staleness

__all__ = ["TrainLoop"]

EVENT_SECONDS = 1.0  # longest sleep between looks at a deadline
PHASES = 5  # of a publication, each with its own deadline
STALE = "stale"  # why a group is dropped

logger = logging.getLogger(__name__)


class TrainLoop:
    """See the module.

    Args:
        config: of the run.
        engine: holds the policy.
        handler: trains on batches.
        link: to Redis and control.
        sender: the learner's part in publications.
        checkpoints: of the run.
        metrics: of this process.
        export: writes the finished model.

    """

    def __init__(
        self,
        config: RunConfig,
        engine: TrainingEngine,
        handler: LearnerHandler,
        link: LearnerLink,
        sender: WeightSender,
        checkpoints: Checkpoints,
        metrics: LearnerMetrics,
        export: Callable[[], None],
    ) -> None:
        self._config = config
        self._engine = engine
        self._handler = handler
        self._link = link
        self._sender = sender
        self._checkpoints = checkpoints
        self._metrics = metrics
        self._export = export
        self._resets = ResetSchedule(config)
        self._state = CheckpointState()
        self._version_steps: dict[int, int] = {}
        self._waiting: dict[str, LabeledGroup] = {}
        self._unacknowledged: list[str] = []
        self._publication: PublicationEnded | None = None
        self._waited = 0.0
        self._stopping = ""

    def run(self) -> None:
        """Train until the last step, or until told to stop.

        Raises:
            PacsError: the run cannot go on; what was trained since the last checkpoint is given out again next time.

        """
        self._restore()
        self._link.start()
        self._publish()
        while self._state.step < self._config.run.max_steps:
            batch = self._collect()
            if self._stopping:
                break
            self._train(batch)
        self._checkpoint()
        self._acknowledge()
        if not self._stopping:
            self._export()
            self._link.report_finished(self._state.step)
            self._linger()

    def _restore(self) -> None:
        found = self._checkpoints.newest()
        if found is None:
            self._engine.take_reference()
            return
        path, self._state = found
        self._engine.load(path)
        logger.info("continuing from %s: step %d, %d groups", path, self._state.step, self._state.groups_trained)

    def _train(self, batch: Mapping[str, LabeledGroup]) -> None:
        began = time.monotonic()
        groups = sorted(batch.values(), key=lambda g: g.group.prompt.sequence)
        ages = [self._staleness(labeled) for labeled in groups]
        figures = self._handler.train(groups, self._metrics.version)
        figures.update(staleness_mean=sum(ages) / len(ages), staleness_max=max(ages))
        seconds = {"wait": self._waited, **figures.pop("seconds")}
        self._state.trained.add(g.group.prompt.sequence for g in groups)
        self._state = replace(
            self._state,
            step=self._state.step + 1,
            groups_trained=self._state.groups_trained + len(groups),
            policy_version=self._metrics.version,
        )
        self._unacknowledged += batch
        self._link.taken(len(groups))
        with _timed(seconds, "checkpoint"):
            figures["reset"] = self._reset_if_due(figures)
            if figures["reset"] or self._state.step % self._config.learner.checkpoint_every_steps == 0:
                self._checkpoint()
                self._acknowledge()
        with _timed(seconds, "publish"):
            self._publish()
        self._report(figures, seconds, time.monotonic() - began + seconds["wait"])

    def _reset_if_due(self, figures: Mapping[str, Any]) -> str:
        """Replace the reference and renew the optimizer; a checkpoint must follow before anybody hears of it."""
        reason = self._resets.due(self._state.step, self._state.reference_epoch, figures)
        if reason:
            self._engine.take_reference()
            if self._config.reset.optimizer:
                self._engine.reset_optimizer(warm_up=self._config.reset.warm_up)
            self._state = replace(self._state, reference_epoch=self._state.reference_epoch + 1)
            logger.info("reset %d after step %d: %s", self._state.reference_epoch, self._state.step, reason)
        return reason

    def _staleness(self, labeled: LabeledGroup) -> int:
        return staleness(labeled.group, self._state.step, self._version_steps)

    def _report(self, figures: dict[str, Any], seconds: dict[str, float], total_seconds: float) -> None:
        figures["policy_version"] = self._metrics.version
        figures["reference_epoch"] = self._state.reference_epoch
        figures["tokens_per_second"] = figures["tokens"] / total_seconds
        figures["seconds"] = {phase: round(value, 4) for phase, value in seconds.items()}
        self._metrics.show_step(figures)
        self._link.report_step(self._state.step, json.dumps(figures))
        logger.info("step %d: accuracy %s, loss %.4f", self._state.step, figures["accuracy"], figures["loss"])

    def _checkpoint(self) -> None:
        """Make what was trained since the last checkpoint durable."""
        if self._unacknowledged:  # else the last one holds it all, and to write it again would first remove it
            path = self._checkpoints.save(self._state, self._engine.save)
            logger.info("checkpoint %s", path)

    def _acknowledge(self) -> None:
        """The gradient of these groups is durable: they count as trained and leave the stream."""
        if self._unacknowledged:
            self._link.acknowledge_trained(self._unacknowledged)
            self._unacknowledged = []

    def _collect(self) -> dict[str, LabeledGroup]:
        """The groups of a batch; empty when stopping."""
        wanted, began = self._config.run.groups_per_step, time.monotonic()
        while not (batch := self._ready()) and not self._stopping:
            missing = wanted - len(self._waiting)
            self._link.waiting_for = f"{missing} of {wanted} labelled groups"
            if time.monotonic() - began > self._config.learner.batch_wait_seconds:
                raise DeadlineExceeded(self._link.waiting_for, self._config.learner.batch_wait_seconds)
            self._take(self._link.next_event(EVENT_SECONDS))
        self._link.waiting_for = ""
        self._waited = time.monotonic() - began
        for entry_id in batch:
            del self._waiting[entry_id]
        return batch

    def _ready(self) -> dict[str, LabeledGroup]:
        """The oldest groups, as many as a batch has, or none yet; those too old to train on are sampled anew."""
        wanted = self._config.run.groups_per_step
        while len(self._waiting) >= wanted:
            oldest = sorted(self._waiting.items(), key=lambda item: item[1].group.prompt.sequence)[:wanted]
            stale = [entry_id for entry_id, g in oldest if self._staleness(g) > self._config.run.max_staleness]
            if not stale:
                return dict(oldest)
            for entry_id in stale:
                self._sample_anew(entry_id, self._waiting.pop(entry_id))
        return {}

    def _sample_anew(self, entry_id: str, labeled: LabeledGroup) -> None:
        """Drop a stale group and admit its prompt again, in one step."""
        logger.warning(
            "group %d is %d batches behind, run.max_staleness is %d: its prompt is admitted again",
            labeled.group.prompt.sequence,
            self._staleness(labeled),
            self._config.run.max_staleness,
        )
        prompt = replace(
            labeled.group.prompt,
            policy_version=self._metrics.version,
            reference_epoch=self._state.reference_epoch,
            admitted_at=time.time(),
        )
        self._link.admit_again(entry_id, encode_prompt(prompt), STALE)
        self._link.taken(1)
        self._metrics.count_stale()

    def _publish(self) -> None:
        """Make the weights live, trying again over a fresh communicator where it fails."""
        attempts, said = self._config.publication.attempts, ""
        for attempt in range(1, attempts + 1):
            ended = self._publish_once()
            if ended is None:
                return
            if ended.reply is not None:
                self._metrics.version = ended.reply.policy_version
                self._version_steps = dict(ended.reply.version_steps)
                return
            said = ended.error
            logger.error("publication attempt %d of %d: %s", attempt, attempts, said)
        raise ServiceFailed(f"the weights could not be made live in {attempts} attempts; the last one: {said}")

    def _publish_once(self) -> PublicationEnded | None:
        """One attempt; None if told to stop meanwhile."""
        self._link.waiting_for = "the publication of its weights"
        settings = self._config.publication
        deadline = PHASES * settings.phase_seconds + self._config.rollout.start_seconds
        deadline += self._config.evaluation.wait_seconds
        self._publication = None
        request = pb.PublishRequest(
            step=self._state.step,
            groups_trained=self._state.groups_trained,
            tensors=manifest_message(self._sender.manifest()),
            bucket_bytes=settings.bucket_bytes,
            reference_epoch=self._state.reference_epoch,
            adapters=self._sender.adapters_message(),
        )
        self._link.publish(request, deadline)
        while (ended := self._ended()) is None and not self._stopping:  # the call has the deadline
            self._take(self._link.next_event(EVENT_SECONDS))
        self._link.waiting_for = ""
        return ended

    def _ended(self) -> PublicationEnded | None:
        return self._publication

    def _linger(self) -> None:
        """Stay reachable until told to stop: the last evaluation may need a replica caught up."""
        self._link.waiting_for = ""
        while not self._stopping:
            self._take(self._link.next_event(EVENT_SECONDS))

    def _take(self, event: Event | None) -> None:
        match event:
            case GroupCame():
                self._keep(event)
            case CommandCame():
                self._carry_out(event)
            case PublicationEnded():
                self._publication = event
            case StopAsked():
                logger.info("stopping: %s", event.reason)
                self._stopping = event.reason
            case RankLost():
                raise event.error
            case LinkBroke():
                raise ServiceFailed(f"the line to Redis and control broke: {event.error}")

    def _keep(self, event: GroupCame) -> None:
        delivery = event.delivery
        if delivery.entry_id in self._waiting or delivery.entry_id in self._unacknowledged:
            self._link.taken(1)  # ours already: held for longer than the claim deadline, Redis gave it out again
            return
        try:
            labeled = decode_labeled_group(delivery.payload)
        except (DecodeError, ValueError) as error:
            logger.error("labeled %s: %s; to the dead-letter stream", delivery.entry_id, error)
            self._link.dead_letter(delivery, "undecodable")
            self._link.taken(1)
            return
        if labeled.group.prompt.sequence in self._state.trained:  # durable before, only its acknowledgement was lost
            self._link.acknowledge_trained([delivery.entry_id])
            self._link.taken(1)
            return
        self._waiting[delivery.entry_id] = labeled

    def _carry_out(self, event: CommandCame) -> None:
        if not event.reply.set_running_or_notify_cancel():  # nobody waits for the result any more
            return
        try:
            if event.command.WhichOneof("command") == "reset":
                asked = event.command.reset
                self._resets.request(asked.reference_epoch, asked.reason)
                event.reply.set_result(pb.CommandResult())
            else:
                event.reply.set_result(self._sender.carry_out(event.command))
        except PacsError as error:
            event.reply.set_exception(error)


@contextlib.contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    seconds[name] = time.monotonic() - began
