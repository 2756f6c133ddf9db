"""The learner's part in a publication: it opens the communicator, sends the weights, and answers the probe."""

from collections.abc import Callable, Mapping
from dataclasses import asdict

import numpy as np

from pacs.errors import ServiceFailed
from pacs.pb import control_pb2 as pb
from pacs.transport.broadcast import BroadcastGroup, Rendezvous
from pacs.transport.manifest import Adapters, TensorMeta
from pacs.transport.weights import send
from services.learner.engine import TrainingEngine

__all__ = ["WeightSender", "manifest_message"]


def manifest_message(tensors: "list[TensorMeta]") -> list[pb.TensorMeta]:
    """The manifest as it travels."""
    return [pb.TensorMeta(name=t.name, dtype=t.dtype, shape=t.shape) for t in tensors]


class WeightSender:
    """Carries out control's commands, on the training thread, between two batches.

    Args:
        engine: holds the weights.
        host: address at which replicas reach this process.
        phase_seconds: deadline of one transfer.
        backend: gloo or nccl.
        adapters: what the engine's tensors are to the base; None where they are the whole model.

    """

    def __init__(
        self, engine: TrainingEngine, host: str, phase_seconds: float, backend: str, adapters: Adapters | None = None
    ) -> None:
        self._engine = engine
        self._host = host
        self._phase_seconds = phase_seconds
        self._backend = backend
        self._adapters = adapters
        self._rendezvous: Rendezvous | None = None
        self._group: BroadcastGroup | None = None

    def manifest(self) -> list[TensorMeta]:
        """What a publication carries: names, dtypes, shapes."""
        return self._engine.manifest()

    def adapters_message(self) -> pb.Adapters | None:
        """What the tensors are to the base, as it travels; None where they are the whole model."""
        return pb.Adapters(**asdict(self._adapters)) if self._adapters else None

    def carry_out(self, command: pb.Command) -> pb.CommandResult:
        """Do what control asks.

        Raises:
            PacsError: with what was waited for, or why it cannot be done.

        """
        actions: Mapping[str, Callable[[pb.Command], pb.CommandResult]] = {
            "open_communicator": self._open,
            "join_communicator": self._join,
            "transfer_weights": self._send,
            "probe": self._probe,
        }
        name = command.WhichOneof("command") or "nothing"
        if name not in actions:
            raise ServiceFailed(f"the learner knows {sorted(actions)}, was asked for {name}")
        return actions[name](command)

    def close(self) -> None:
        """Leave the communicator."""
        if self._group is not None:
            self._group.close()
        self._group = self._rendezvous = None

    def _open(self, command: pb.Command) -> pb.CommandResult:
        self.close()
        self._rendezvous = Rendezvous.open(self._host, command.open_communicator.timeout_seconds)
        return pb.CommandResult(address=self._rendezvous.address)

    def _join(self, command: pb.Command) -> pb.CommandResult:
        if self._rendezvous is None:
            raise ServiceFailed("the learner must open a communicator before it can join one")
        asked = command.join_communicator
        self._group = BroadcastGroup.form(
            self._rendezvous,
            backend=self._backend,
            rank=asked.rank,
            world_size=asked.world_size,
            timeout_seconds=asked.timeout_seconds,
        )
        return pb.CommandResult()

    def _send(self, command: pb.Command) -> pb.CommandResult:
        if self._group is None:
            raise ServiceFailed("the learner must join a communicator before it can send weights")
        asked = command.transfer_weights
        if asked.adapters != (self.adapters_message() or pb.Adapters()):
            raise ServiceFailed(
                f"a transfer must be of what the learner trains, {self._adapters or 'the whole model'}, got an order "
                f"for rank {asked.adapters.rank} and alpha {asked.adapters.alpha:g}; publish again"
            )
        manifest = [TensorMeta(t.name, t.dtype, tuple(t.shape)) for t in asked.tensors]
        tensors = self._engine.named_tensors()
        return pb.CommandResult(digests=send(self._group, tensors, manifest, asked.bucket_bytes, self._phase_seconds))

    def _probe(self, command: pb.Command) -> pb.CommandResult:
        token_ids = np.frombuffer(command.probe.token_ids, dtype="<i4")
        return pb.CommandResult(probe_logprobs=self._engine.probe(token_ids).astype("<f4").tobytes())
