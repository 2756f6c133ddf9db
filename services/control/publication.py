"""One policy version made live: pause → connect → transfer → verify → resume, as one transaction.

Verified twice: the digests of the tensors that arrived equal those the learner sent, and a fixed probe's
log-probs agree with the learner's. A replica that fails stays paused and takes no prompts; what it sampled from
weights that were not verified is never handed over.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacs.errors import DeadlineExceeded, PublicationFailed, ServiceFailed
from pacs.pb import control_pb2 as pb
from pacs.runtime.config import RunConfig
from pacs.transport.manifest import joined_digest
from services.control.agents import Agent, AgentRegistry

__all__ = ["Publication", "Publisher"]

LOGPROB_DTYPE = np.dtype("<f4")

logger = logging.getLogger(__name__)


@dataclass
class Publication:
    """What a publication came to.

    Args:
        weights: digest of all tensors that arrived.
        max_logprob_gap: largest |engine − learner| over the probe and all replicas, nats.
        phase_seconds: time of each phase.
        version_steps: batches behind each of the last versions.

    """

    policy_version: int
    weights: str = ""
    max_logprob_gap: float = 0.0
    phase_seconds: dict[str, float] = field(default_factory=dict)
    version_steps: dict[int, int] = field(default_factory=dict)


class Publisher:
    """Runs publications, one at a time.

    Args:
        config: of the run.
        agents: who is attached.
        probe_token_ids: int32 [tokens], the fixed probe.

    """

    def __init__(self, config: RunConfig, agents: AgentRegistry, probe_token_ids: NDArray[np.int32]) -> None:
        self._config = config
        self._agents = agents
        self._probe = pb.Probe(token_ids=probe_token_ids.astype("<i4").tobytes())
        self._phase_seconds = config.publication.phase_seconds
        self._members: tuple[Agent, ...] = ()

    async def publish(
        self, policy_version: int, tensors: Sequence[pb.TensorMeta], adapters: pb.Adapters | None = None
    ) -> Publication:
        """Bring `policy_version` onto every attached replica and verify it there.

        Args:
            policy_version: the new one.
            tensors: the learner's manifest.
            adapters: what its tensors are to the base; None where they are the whole model.

        Raises:
            PublicationFailed: with the phase, the participant and its own error text.
            DeadlineExceeded: no replica or no learner attached in time.

        """
        learner = (await self._agents.wait_for("learner", self._phase_seconds))[0]
        replicas = await self._agents.wait_for("rollout", self._config.rollout.start_seconds)
        publication = Publication(policy_version)
        try:
            async with self._phase(publication, "pause"):
                await self._all("pause", replicas, pb.Command(pause=pb.Pause()))
            async with self._phase(publication, "connect"):
                await self._connect(learner, replicas)
            async with self._phase(publication, "transfer"):
                publication.weights = await self._transfer(learner, replicas, policy_version, tensors, adapters)
            async with self._phase(publication, "verify"):
                publication.max_logprob_gap = await self._verify(learner, replicas)
            async with self._phase(publication, "resume"):
                await self._all("resume", replicas, pb.Command(resume=pb.Resume(policy_version=policy_version)))
        except PublicationFailed as failure:
            self._fence(replicas, failure)
            raise
        for replica in replicas:
            replica.ready_version, replica.fenced_error = policy_version, ""
        return publication

    @contextlib.asynccontextmanager
    async def _phase(self, publication: Publication, name: str) -> AsyncIterator[None]:
        started = time.monotonic()
        yield
        publication.phase_seconds[name] = round(time.monotonic() - started, 4)

    def _fence(self, replicas: Sequence[Agent], failure: PublicationFailed) -> None:
        logger.error("%s", failure)
        self._members = ()  # whatever state the communicator is in, the next attempt builds a fresh one
        for replica in replicas:
            replica.ready_version = 0
            replica.fenced_error = str(failure)

    async def _connect(self, learner: Agent, replicas: Sequence[Agent]) -> None:
        """Build the communicator anew if anybody came or went since the last publication."""
        members = (learner, *replicas)
        if self._members == members:
            return
        size, seconds = len(members), self._phase_seconds
        opening = pb.OpenCommunicator(world_size=size, timeout_seconds=seconds)
        opened = await self._one("connect", learner, pb.Command(open_communicator=opening))
        await self._together(
            self._one(
                "connect",
                agent,
                pb.Command(
                    join_communicator=pb.JoinCommunicator(
                        address=opened.address, rank=rank, world_size=size, timeout_seconds=seconds
                    )
                ),
            )
            for rank, agent in enumerate(members)
        )
        self._members = members

    async def _transfer(
        self,
        learner: Agent,
        replicas: Sequence[Agent],
        policy_version: int,
        tensors: Sequence[pb.TensorMeta],
        adapters: pb.Adapters | None,
    ) -> str:
        """Send the tensors and compare what arrived; returns their joined digest."""
        command = pb.TransferWeights(
            policy_version=policy_version,
            tensors=tensors,
            bucket_bytes=self._config.publication.bucket_bytes,
            adapters=adapters,
        )
        sent, *received = await self._together(
            self._one("transfer", agent, pb.Command(transfer_weights=command)) for agent in (learner, *replicas)
        )
        if len(sent.digests) != len(tensors):
            reason = f"the learner must send a digest for each of {len(tensors)} tensors, got {len(sent.digests)}"
            raise PublicationFailed("transfer", learner.agent_id, reason)
        for replica, result in zip(replicas, received, strict=True):
            wrong = [m.name for m, a, b in zip(tensors, sent.digests, result.digests, strict=False) if a != b]
            if wrong or len(result.digests) != len(sent.digests):
                reason = (
                    f"digests of the tensors that arrived must equal those sent, got {len(wrong)} of "
                    f"{len(sent.digests)} different (first: {wrong[:3]}) and {len(result.digests)} digests"
                )
                raise PublicationFailed("transfer", replica.agent_id, reason)
        return joined_digest(dict(zip((tensor.name for tensor in tensors), sent.digests, strict=True)))

    async def _verify(self, learner: Agent, replicas: Sequence[Agent]) -> float:
        """Compare the probe's log-probs; returns the largest difference, nats."""
        expected, *measured = await self._together(
            self._one("verify", agent, pb.Command(probe=self._probe)) for agent in (learner, *replicas)
        )
        gaps = [_gap(expected.probe_logprobs, result.probe_logprobs) for result in measured]
        for replica, gap in zip(replicas, gaps, strict=True):
            if not gap <= self._config.logprob_tolerance:  # NaN fails too
                reason = (
                    f"the probe's log-probs must agree with the learner's within {self._config.logprob_tolerance:g} "
                    f"nats, got a difference of {gap:g}; the engine does not compute with the weights that arrived"
                )
                raise PublicationFailed("verify", replica.agent_id, reason)
        return max(gaps)

    async def _all(self, phase: str, agents: Sequence[Agent], command: pb.Command) -> list[pb.CommandResult]:
        return await self._together(self._one(phase, agent, _copy(command)) for agent in agents)

    async def _one(self, phase: str, agent: Agent, command: pb.Command) -> pb.CommandResult:
        try:
            return await agent.request(command, self._phase_seconds)
        except (ServiceFailed, DeadlineExceeded) as error:
            raise PublicationFailed(phase, agent.agent_id, str(error)) from error

    async def _together(self, requests: Iterable[Coroutine[Any, Any, pb.CommandResult]]) -> list[pb.CommandResult]:
        """Run requests at once; the first failure cancels the waits for the others."""
        tasks = [asyncio.ensure_future(request) for request in requests]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _copy(command: pb.Command) -> pb.Command:
    copy = pb.Command()
    copy.CopyFrom(command)
    return copy


def _gap(expected: bytes, measured: bytes) -> float:
    a, b = np.frombuffer(expected, LOGPROB_DTYPE), np.frombuffer(measured, LOGPROB_DTYPE)
    if a.shape != b.shape or a.size == 0:
        return float("nan")
    return float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64))))
