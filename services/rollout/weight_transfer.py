"""Our side of vLLM's weight-transfer interface: packed, digested broadcasts into a live model.

Lives in vLLM's worker process. vLLM imports it there because `WORKER_EXTENSION` is named in the engine's arguments;
importing it registers the engines. One remote call carries a whole publication, and a failed one leaves a worker that
takes the next: its model is structurally whole, though half of its weights may be new.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch  # noqa: TID253 - the edge file of vLLM's workers
from vllm.distributed.weight_transfer.base import (  # noqa: TID253 - as above
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory  # noqa: TID253 - as above
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead  # noqa: TID253 - as above
from vllm.model_executor.model_loader.reload import (  # noqa: TID253 - as above
    finalize_layerwise_reload,
    initialize_layerwise_reload,
)
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info  # noqa: TID253 - as above

from pacs.errors import PacsError
from pacs.transport.broadcast import BroadcastGroup, Rendezvous
from pacs.transport.manifest import Adapters
from pacs.transport.weights import TensorMeta, receive
from services.rollout.adapters import BaseModel

__all__ = ["WORKER_EXTENSION", "BroadcastTransferEngine", "WeightTransferWorker", "registered_name"]

WORKER_EXTENSION = "services.rollout.weight_transfer.WeightTransferWorker"
_NAMES_SHOWN = 5  # in errors about many parameters


@dataclass
class CommunicatorInfo(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM is untyped here
    """Where to meet; `rank` is that of the replica's first worker."""

    address: str
    rank: int
    world_size: int
    timeout_seconds: float


@dataclass
class PublicationInfo(WeightTransferUpdateInfo):  # type: ignore[misc]  # vLLM is untyped here
    """What will come: parallel lists, as they travel through vLLM's message queue; `adapters` if it is no model."""

    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]
    bucket_bytes: int
    adapters: dict[str, Any] | None = None

    @classmethod
    def payload(cls, tensors: Sequence[TensorMeta], bucket_bytes: int, adapters: Adapters | None) -> dict[str, Any]:
        """The plain form that vLLM carries to the worker."""
        return {
            "names": [tensor.name for tensor in tensors],
            "dtypes": [tensor.dtype for tensor in tensors],
            "shapes": [list(tensor.shape) for tensor in tensors],
            "bucket_bytes": bucket_bytes,
            "adapters": adapters and asdict(adapters),
        }

    @property
    def manifest(self) -> list[TensorMeta]:
        """The tensors as values again."""
        rows = zip(self.names, self.dtypes, self.shapes, strict=True)
        return [TensorMeta(name, dtype, tuple(shape)) for name, dtype, shape in rows]


class BroadcastTransferEngine(WeightTransferEngine):  # type: ignore[misc]  # vLLM is untyped here
    """Receives packed buckets by `backend` and loads them layer by layer in the checkpoint's format."""

    init_info_cls = CommunicatorInfo
    update_info_cls = PublicationInfo
    supports_draft_weight_update = False
    backend = "gloo"

    group: BroadcastGroup | None = None
    timeout_seconds = 0.0
    digests: tuple[str, ...] = ()

    def init_transfer_engine(self, init_info: CommunicatorInfo) -> None:
        """Join the communicator, leaving an earlier one."""
        self.shutdown()
        self.timeout_seconds = init_info.timeout_seconds
        rendezvous = Rendezvous.connect(init_info.address, init_info.timeout_seconds)
        self.group = BroadcastGroup.form(
            rendezvous,
            backend=self.backend,
            rank=init_info.rank + self.parallel_config.rank,
            world_size=init_info.world_size,
            timeout_seconds=init_info.timeout_seconds,
        )

    def start_weight_update(self) -> None:
        """Make every layer ready to be loaded again."""
        self.digests = ()
        self._missing = {name for name, _ in self.model.named_parameters()}
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: PublicationInfo) -> None:
        """Receive and load everything the manifest lists; with the base, if need be, it must be the whole model."""
        if self.group is None:
            raise PacsError("a publication needs a communicator, got none; join one first")
        if update_info.adapters is None:
            digests = self._receive(update_info, self._load)
        else:
            digests = self._receive_adapters(update_info, Adapters(**update_info.adapters))
        if self._missing:
            raise PacsError(
                "a publication must carry the whole model, got none of the tensors that make up "
                f"{len(self._missing)} parameters: {sorted(self._missing)[:_NAMES_SHOWN]}"
            )
        self.digests = tuple(digests)

    def finish_weight_update(self) -> None:
        """Put the loaded layers to use."""
        finalize_layerwise_reload(self.model, self.model_config)
        self.repack_tied_head()

    def repack_tied_head(self) -> None:
        """On CPU an lm_head tied to the embedding multiplies by a packed copy of its own, which reloading forgets."""
        if self.device.type != "cpu" or not self.model_config.hf_text_config.tie_word_embeddings:
            return
        for module in self.model.modules():
            if isinstance(module, ParallelLMHead):
                module.quant_method.process_weights_after_loading(module)

    def abandon(self) -> None:
        """After a failure: forget what was buffered, put the layers' tensors back, and leave the communicator.

        Layers that were complete before the failure keep their new weights. Without this, what is buffered would be
        counted again by the next publication, and a layer taken for complete before it is.
        """
        self.shutdown()
        self.digests = ()
        for layer in self.model.modules():
            info = get_layerwise_info(layer)
            if info.can_load():
                info.loaded_weights.clear()
                info.load_numel = 0
        finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Leave the communicator."""
        if self.group is not None:
            self.group.close()
        self.group = None

    @cached_property
    def _base(self) -> BaseModel:
        return BaseModel(Path(self.model_config.model))

    def _receive_adapters(self, update_info: PublicationInfo, adapters: Adapters) -> list[str]:
        """Gather the adapters, which are small, then load the whole model from disk with them merged."""
        self._base.check(adapters, update_info.manifest)
        arrived: dict[str, torch.Tensor] = {}
        digests = self._receive(update_info, arrived.update)
        self._load(self._base.merged(arrived, adapters.scale, self.model_config.dtype))
        return digests

    def _receive(
        self, update_info: PublicationInfo, load: Callable[[list[tuple[str, torch.Tensor]]], object]
    ) -> list[str]:
        assert self.group is not None
        return receive(self.group, update_info.manifest, update_info.bucket_bytes, self.timeout_seconds, load)

    def _load(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        self._missing -= self.model.load_weights(tensors)


class NcclTransferEngine(BroadcastTransferEngine):
    """The same between GPUs. Not run by this project's tests, which have no GPU."""

    backend = "nccl"


def registered_name(backend: str) -> str:
    """The name of our engine in vLLM's factory, whose plain `nccl` is taken by vLLM's own."""
    return f"pacs-{backend}"


def _register() -> None:
    for engine in (BroadcastTransferEngine, NcclTransferEngine):
        WeightTransferEngineFactory.register_engine(registered_name(engine.backend), engine)


_register()


class WeightTransferWorker:
    """Mixed into vLLM's worker: a whole publication in one remote call."""

    weight_transfer_engine: BroadcastTransferEngine
    vllm_config: Any
    _weight_update_active: bool

    def publish_weights(self, publication: dict[str, Any]) -> list[str]:
        """Receive a publication through vLLM's own start, update and finish; returns the digests of what arrived."""
        worker: Any = self
        try:
            worker.start_weight_update()
            worker.update_weights(publication)
            worker.finish_weight_update()
        except BaseException:  # whatever it was, the next publication must find a worker that can take it
            self._abandon_publication()
            raise
        return list(self.weight_transfer_engine.digests)

    def _abandon_publication(self) -> None:
        from vllm.config import set_current_vllm_config

        self._weight_update_active = False
        with set_current_vllm_config(self.vllm_config):
            self.weight_transfer_engine.abandon()
