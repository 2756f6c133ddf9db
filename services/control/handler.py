"""What control does with what it is told: attach, report, publish, finish, stop. Knows no HTTP and no gRPC server."""

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from typing import Any

from pacs.errors import BadInput, PacsError, PublicationFailed
from pacs.pb import control_pb2 as pb
from pacs.runtime.config import RunConfig
from pacs.transport.interface import GroupStreams, Ledger, Stream
from services.control.admission import Admission
from services.control.agents import Agent, AgentRegistry
from services.control.evaluation import Evaluator
from services.control.metrics import ControlMetrics
from services.control.publication import Publication, Publisher
from services.control.run_state import Phase, RunState

__all__ = ["ControlHandler"]

ADMISSION_INTERVAL_SECONDS = 0.2  # between looks at the ledger when nothing woke us

logger = logging.getLogger(__name__)


class ControlHandler:
    """The run's conductor.

    Waits for / is unblocked by
        * `admit_forever`: free slots / a publication, a dropped group, a resume.
        * `publish`: the running evaluation, then the replicas / their results, each with a deadline.
        * `finish`: the learner's last publication and the last evaluation.

    """

    def __init__(
        self,
        config: RunConfig,
        state: RunState,
        streams: GroupStreams,
        agents: AgentRegistry,
        admission: Admission,
        evaluator: Evaluator,
        publisher: Publisher,
        metrics: ControlMetrics,
    ) -> None:
        self._config = config
        self._state = state
        self._streams = streams
        self._agents = agents
        self._admission = admission
        self._evaluator = evaluator
        self._publisher = publisher
        self._metrics = metrics
        self._publishing = asyncio.Lock()
        self._evaluation: asyncio.Task[Any] | None = None
        self._tensors: Sequence[pb.TensorMeta] = ()
        self._adapters: pb.Adapters | None = None
        self._wake = asyncio.Event()
        self._latest: dict[str, Any] = {}
        self._pause_reason = ""
        self.failure = ""

    async def admit_forever(self) -> None:
        """Keep the pipeline as full as it may be."""
        while True:
            self._wake.clear()
            await self._admission.admit_what_fits()
            for agent in self._agents.drop_silent(self._config.control.lost_after_seconds):
                logger.error("%s was not heard of for too long and counts as lost", agent.agent_id)
            await self._show()
            try:
                async with asyncio.timeout(ADMISSION_INTERVAL_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def publish(self, request: pb.PublishRequest) -> Publication:
        """Make the learner's weights the next policy version; opens the run at the first one.

        Raises:
            PublicationFailed, DeadlineExceeded: see `Publisher.publish`.

        """
        async with self._publishing:
            await self._evaluation_done()
            self._tensors = list(request.tensors)
            self._adapters = request.adapters if request.HasField("adapters") else None
            version = await self._state.policy_version() + 1
            publication = await self._bring_live(version)
            await self._state.commit_version(version, request.step, request.groups_trained, request.reference_epoch)
            publication.version_steps = await self._state.version_steps()
            await self._record(publication, request.step)
            await self._start_evaluation(version, request.step)
            if await self._state.phase() is Phase.STARTING:
                await self._state.set_phase(Phase.RUNNING)
        self._wake.set()
        return publication

    async def learner_attached(self, learner: Agent, hello: pb.Hello) -> None:
        """Place a learner: to be awaited before it is given any command, so that its first publication comes after.

        A new one's first act is a publication; until then its slots cannot be counted and nothing is admitted. One that
        lived through our restart goes on.
        """
        learner.ready_version = hello.policy_version
        await self._pass_on_reset(learner)
        if await self._state.phase() in (Phase.STARTING, Phase.RUNNING):
            await self._state.set_phase(Phase.STARTING if hello.fresh else Phase.RUNNING)

    async def replica_attached(self, replica: Agent, hello: pb.Hello) -> None:
        """Place a replica: one that lived through our restart goes on, a new one has something to catch up with."""
        replica.ready_version = hello.policy_version
        if hello.fresh and self._tensors:
            async with self._publishing:
                await self._catch_up(replica)

    async def _catch_up(self, replica: Agent) -> None:
        """A replica that came late holds no verified weights: bring the live version onto it."""
        version = await self._state.policy_version()
        if replica.ready_version < version:
            await self._evaluation_done()
            logger.info("%s came late: publishing version %d again", replica.agent_id, version)
            await self._bring_live(version)

    async def step_done(self, report: pb.StepReport) -> None:
        """Keep the figures of one batch."""
        self._latest = {"step": report.step, **json.loads(report.figures_json)}
        await self._state.record("step", self._latest)

    async def finish(self) -> None:
        """The learner has done its last batch: measure the last version, then the run is finished."""
        async with self._publishing:
            await self._evaluation_done()
            await self._state.set_phase(Phase.FINISHED)
            self._metrics.show_phase(Phase.FINISHED)

    async def set_paused(self, paused: bool, reason: str = "") -> None:
        """Stop or continue admission; groups in flight go on. The reason is shown as what the run waits for."""
        if await self._state.phase() in (Phase.RUNNING, Phase.PAUSED):
            self._pause_reason = reason if paused else ""
            if reason:
                logger.error("paused: %s", reason)
            await self._state.set_phase(Phase.PAUSED if paused else Phase.RUNNING)
        self._wake.set()

    async def request_reset(self, reason: str) -> int:
        """Have the reference replaced by the policy after the batch in hand; returns the epoch that begins then.

        Asked again before it is done, it is the same reset.

        Raises:
            BadInput: the run has no snapshot for a reference.

        """
        reference = self._config.algorithm.reference
        if self._config.algorithm.name != "pacs" or reference == "batch":
            raise BadInput(
                f"a reset needs a reference that is kept, got algorithm.reference={reference}, which is renewed with "
                "every batch; set algorithm.reference to manual, interval, drift or stall"
            )
        epoch = await self._state.reference_epoch() + 1
        await self._state.want_reset(epoch, reason)
        for learner in self._agents.of_role("learner"):
            await self._pass_on_reset(learner)
        return epoch

    async def _pass_on_reset(self, learner: Agent) -> None:
        """Tell the learner of the reset that is wanted; one it has done already it leaves alone."""
        epoch, reason = await self._state.wanted_reset()
        if epoch > await self._state.reference_epoch():
            learner.commands.put_nowait(pb.Command(reset=pb.Reset(reference_epoch=epoch, reason=reason)))

    async def stop(self, reason: str) -> None:
        """Ask the learner to checkpoint and end; the run can be continued later."""
        if await self._state.phase() is not Phase.FINISHED:
            await self._state.set_phase(Phase.STOPPING)
        for learner in self._agents.of_role("learner"):
            learner.commands.put_nowait(pb.Command(stop=pb.Stop(reason=reason)))

    async def ledger(self) -> Ledger:
        """Of the training lane."""
        return await self._streams.ledger()

    async def history(self, after: int) -> list[dict[str, Any]]:
        """Steps, evaluations and publications from number `after` on."""
        return await self._state.history(after)

    async def overview(self) -> dict[str, Any]:
        """The run in one object: what `GET /v1/run` answers."""
        ledger = await self._streams.ledger()
        queues = await self._streams.queue_lengths()
        return {
            "run": self._config.run.name,
            "state": "failed" if self.failure else (await self._state.phase()).value,
            "failure": self.failure,
            "step": await self._state.step(),
            "max_steps": self._config.run.max_steps,
            "policy_version": await self._state.policy_version(),
            "reference_epoch": await self._state.reference_epoch(),
            "groups_per_step": self._config.run.groups_per_step,
            "train_accuracy": self._latest.get("accuracy"),
            "heldout_accuracy": await self._state.heldout_accuracy(),
            "tokens_per_second": self._latest.get("tokens_per_second"),
            "staleness_max": self._latest.get("staleness_max"),
            "tokens_generated": ledger.tokens_generated + await self._evaluator.tokens_generated(),
            "queues": {stream.value: n for stream, n in queues.items()},
            "problems": self._admission.problems,
            "agents": [self._describe(agent) for agent in self._agents.all()],
            "waiting_for": self._waiting_for(),
            "ledger": ledger_object(ledger),
        }

    async def _bring_live(self, version: int) -> Publication:
        try:
            publication = await self._publisher.publish(version, self._tensors, self._adapters)
        except PacsError:
            self._metrics.count_publication("failed")
            raise
        self._metrics.count_publication("ok")
        self._metrics.policy_version.set(version)
        self._metrics.logprob_gap.set(publication.max_logprob_gap)
        self._metrics.show_phase_seconds(publication.phase_seconds)
        return publication

    async def _record(self, publication: Publication, step: int) -> None:
        await self._state.record(
            "publication",
            {
                "step": step,
                "policy_version": publication.policy_version,
                "weights": publication.weights,
                "max_logprob_gap": publication.max_logprob_gap,
                "seconds": publication.phase_seconds,
            },
        )

    async def _start_evaluation(self, version: int, step: int) -> None:
        evaluated = await self._state.evaluated_version()
        if self._evaluator.due(step, evaluated, self._config.run.max_steps):
            self._evaluation = asyncio.create_task(self._evaluate(version, step))

    async def _evaluate(self, version: int, step: int) -> None:
        figures = await self._evaluator.evaluate(version, step)
        accuracy = figures["accuracy"]
        if accuracy is None:
            return
        self._metrics.heldout_accuracy.set(accuracy)
        if self._config.algorithm.reference == "stall":
            await self._reset_if_stalled(accuracy)

    async def _reset_if_stalled(self, accuracy: float) -> None:
        stalled = await self._state.evaluations_without_gain(accuracy, await self._state.reference_epoch())
        if stalled >= self._config.reset.stall_evaluations:
            await self.request_reset(f"no better held-out accuracy in {stalled} evaluations")

    async def _evaluation_done(self) -> None:
        """Wait for the running evaluation; it has its own deadline."""
        if self._evaluation is None:
            return
        try:
            await self._evaluation
        except PacsError as error:
            raise PublicationFailed("evaluation", "control", str(error)) from error
        finally:
            self._evaluation = None

    def _waiting_for(self) -> str:
        if self._evaluation is not None and not self._evaluation.done():
            return "the held-out evaluation"
        if self._pause_reason:
            return f"somebody to resume the run: {self._pause_reason}"
        for role in ("learner", "rollout"):
            if not self._agents.of_role(role):
                return f"a {role} to attach"
        said = [f"{a.agent_id}: {a.waiting_for}" for a in self._agents.all() if a.waiting_for]
        return "; ".join(said)

    def _describe(self, agent: Agent) -> dict[str, Any]:
        return {
            "agent_id": agent.agent_id,
            "role": agent.role,
            "ready": agent.role != "rollout" or agent.ready_version > 0,
            "fenced_error": agent.fenced_error,
            "waiting_for": agent.waiting_for,
            "heartbeat_age_seconds": round(time.monotonic() - agent.last_heard, 1),
            "gauges": dict(agent.gauges),
        }

    async def _show(self) -> None:
        self._metrics.show_ledger(await self._streams.ledger())
        self._metrics.show_phase(await self._state.phase())
        for stream, groups in (await self._streams.queue_lengths()).items():
            self._metrics.show_queue(Stream(stream), groups)


def ledger_object(ledger: Ledger) -> dict[str, Any]:
    """The ledger as `GET /v1/ledger` answers it."""
    return {
        "admitted": ledger.admitted,
        "trained": ledger.trained,
        "dropped": dict(ledger.dropped),
        "in_flight": ledger.in_flight,
    }
