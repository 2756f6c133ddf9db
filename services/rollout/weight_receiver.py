"""The replica's part in a publication: what control's commands do to the engine and to the groups in hand."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import numpy as np

from pacs.errors import ServiceFailed
from pacs.pb import control_pb2 as pb
from pacs.runtime.config import LoraSection
from pacs.transport.manifest import Adapters, TensorMeta
from services.rollout.engine import SamplingEngine
from services.rollout.metrics import RolloutMetrics

__all__ = ["WeightReceiver"]

logger = logging.getLogger(__name__)

Action = Callable[[pb.Command], Awaitable[pb.CommandResult]]


class WeightReceiver:
    """Carries out control's commands, one at a time.

    The gate is open only while the weights in the engine are verified. Between transfer and verdict the engine runs,
    for nothing can be probed while it stands, but what it finishes waits at the gate; if the verdict never comes, the
    next attempt's pause throws it away and the prompts are sampled again.

    Args:
        engine: of this replica.
        gate: of the replica's workers.
        abandon: lets go of every group in hand.
        metrics: of this replica.
        lora: the adapters this replica expects.

    """

    def __init__(
        self,
        engine: SamplingEngine,
        gate: asyncio.Event,
        abandon: Callable[[], Awaitable[None]],
        metrics: RolloutMetrics,
        lora: LoraSection = LoraSection(),  # noqa: B008  # frozen
    ) -> None:
        self._engine = engine
        self._gate = gate
        self._abandon = abandon
        self._metrics = metrics
        self._lora = lora
        self._unverified = False
        self._policy_version = 0

    @property
    def policy_version(self) -> int:
        """The verified version held; 0 where there is none."""
        return 0 if self._unverified else self._policy_version

    async def carry_out(self, command: pb.Command) -> pb.CommandResult:
        """Do what control asks.

        Raises:
            PacsError: with the engine's own text.

        """
        actions: Mapping[str, Action] = {
            "pause": self._pause,
            "join_communicator": self._join,
            "transfer_weights": self._receive,
            "probe": self._probe,
            "resume": self._resume,
        }
        name = command.WhichOneof("command") or "nothing"
        if name not in actions:
            raise ServiceFailed(f"a rollout replica knows {sorted(actions)}, was asked for {name}")
        return await actions[name](command)

    async def _pause(self, _command: pb.Command) -> pb.CommandResult:
        self._gate.clear()
        if self._unverified:
            logger.warning("the last publication was not verified: groups in hand are sampled again")
            await self._abandon()
        await self._engine.pause()
        return pb.CommandResult()

    async def _join(self, command: pb.Command) -> pb.CommandResult:
        asked = command.join_communicator
        await self._engine.join_communicator(asked.address, asked.rank, asked.world_size, asked.timeout_seconds)
        return pb.CommandResult()

    async def _receive(self, command: pb.Command) -> pb.CommandResult:
        asked = command.transfer_weights
        manifest = [TensorMeta(t.name, t.dtype, tuple(t.shape)) for t in asked.tensors]
        adapters = self._adapters(asked)
        self._unverified = True
        digests = await self._engine.receive_weights(asked.policy_version, manifest, asked.bucket_bytes, adapters)
        return pb.CommandResult(digests=digests)

    def _adapters(self, asked: pb.TransferWeights) -> Adapters | None:
        """What the tensors are to the base, if it is what this replica was configured for."""
        given = (asked.adapters.rank, asked.adapters.alpha)
        wanted = (self._lora.rank, self._lora.alpha) if self._lora.rank else (0, 0.0)
        if given != wanted:
            raise ServiceFailed(
                "a publication must be of what model.lora says here, got (rank, alpha) = "
                f"{given} for {wanted}, where rank 0 is the whole model; give all services the same configuration"
            )
        return Adapters(*given, asked.adapters.base) if given[0] else None

    async def _probe(self, command: pb.Command) -> pb.CommandResult:
        await self._engine.resume()
        logprobs = await self._engine.probe(np.frombuffer(command.probe.token_ids, dtype="<i4"))
        return pb.CommandResult(probe_logprobs=logprobs.astype("<f4").tobytes())

    async def _resume(self, command: pb.Command) -> pb.CommandResult:
        self._unverified = False
        self._policy_version = command.resume.policy_version
        self._metrics.show_version(self._policy_version)
        self._gate.set()
        return pb.CommandResult()
