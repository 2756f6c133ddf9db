"""Adapters become whole weights again: every tensor of the base from disk, those that are adapted merged.

The base is mapped into memory and read a tensor at a time. Each publication begins with it, so that errors of rounding
do not add up, and the engine's weights are a function of the base and the adapters alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pacs.errors import BadInput
from pacs.runtime.base_model import fingerprint, weight_files
from pacs.transport.manifest import Adapters, TensorMeta, adapter_pair

if TYPE_CHECKING:
    import torch

__all__ = ["BaseModel"]

_NAMES_SHOWN = 5  # in errors about many tensors


class BaseModel:
    """The base in one folder, as this replica has it.

    Args:
        folder: in Hugging Face format, with safetensors files.

    Raises:
        BadInput: it holds no such files.

    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = weight_files(folder)
        self._fingerprint = fingerprint(folder)

    def check(self, adapters: Adapters, manifest: Sequence[TensorMeta]) -> None:
        """Whether a publication's tensors are adapters of this base, all in pairs.

        Raises:
            BadInput: they are not; nothing was received yet.

        """
        if adapters.base != self._fingerprint:
            raise BadInput(
                f"learner and rollout must have the same base, got fingerprint {adapters.base[:12]}… there and "
                f"{self._fingerprint[:12]}… of {self._folder} here; copy the learner's folder, file by file"
            )
        shapes = {tensor.name: tensor.shape for tensor in manifest}
        wanted: dict[str, tuple[int, ...]] = {}
        for name, shape in self._shapes():
            a_name, b_name = adapter_pair(name)
            if a_name in shapes or b_name in shapes:
                wanted |= {a_name: (adapters.rank, *shape[1:]), b_name: (*shape[:1], adapters.rank)}
        wrong = sorted(name for name in shapes.keys() | wanted.keys() if shapes.get(name) != wanted.get(name))
        if wrong:
            shown = [f"{n}: {shapes.get(n, 'missing')} for {wanted.get(n, 'nothing')}" for n in wrong[:_NAMES_SHOWN]]
            raise BadInput(
                f"a publication of adapters must carry pairs of rank {adapters.rank} for matrices of the base in "
                f"{self._folder}, got {len(wrong)} tensors that are not: {'; '.join(shown)}"
            )

    def merged(
        self, arrived: Mapping[str, "torch.Tensor"], scale: float, dtype: "torch.dtype"
    ) -> "Iterator[tuple[str, torch.Tensor]]":
        """Every tensor under its name on disk, in the base's order; with W + scale·B·A where a pair arrived.

        Args:
            arrived: what was checked, by name.
            scale: on B·A.
            dtype: of the learner's base and of the engine's weights.

        """
        from safetensors import safe_open

        from pacs.algo.lora import merge_lora

        for path in self._files:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118  # a handle, not a mapping
                    weight = file.get_tensor(name)
                    a_name, b_name = adapter_pair(name)
                    if a_name in arrived:
                        weight = merge_lora(weight.to(dtype), arrived[a_name], arrived[b_name], scale)
                    yield name, weight

    def _shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        from safetensors import safe_open

        for path in self._files:
            with safe_open(path, framework="np") as file:
                for name in file.keys():  # noqa: SIM118  # a handle, not a mapping
                    yield name, tuple(file.get_slice(name).get_shape())
