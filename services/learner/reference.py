"""The reference policy as a second set of the weights that training changes, each rank keeping its share of it.

It is never used where it lies: for a pass under the reference the two sets change places, in place and to the bit, so
that no rank ever holds two whole models. Where weights are divided (ZeRO 3) every rank swaps its own part; otherwise
each tensor's reference lies on one rank, which sends it to the others and takes it back.
"""

import contextlib
import heapq
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch  # noqa: TID253  # this file handles the engine's tensors
from torch import Tensor, distributed  # noqa: TID253

from pacs.errors import CheckpointDamaged

__all__ = ["ReferenceSnapshot"]

FILE = "reference-{rank}.safetensors"


class ReferenceSnapshot:
    """π_ref beside π_θ.

    Args:
        parameters: the trained parameters by name, the same on every rank.
        rank: this one.
        ranks: how many there are.
        divided: whether each rank has a part of every parameter (ZeRO 3).
        offload: keep the reference in the CPU's memory.

    """

    def __init__(
        self, parameters: Mapping[str, Tensor], *, rank: int, ranks: int, divided: bool, offload: bool
    ) -> None:
        self._parameters = parameters
        self._rank = rank
        self._ranks = ranks
        self._divided = divided
        self._offload = offload
        self._owner = {} if divided else _owners({name: p.numel() for name, p in parameters.items()}, ranks)
        self._kept: dict[str, Tensor] = {}

    def take(self) -> None:
        """Make the reference what the policy is now."""
        for name in self._mine():
            source = self._local(name)
            if name in self._kept:
                self._kept[name].copy_(source)
            else:
                self._kept[name] = source.cpu() if self._offload and source.is_cuda else source.clone()

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Within the block the parameters are the reference's; collective."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def save(self, directory: Path) -> None:
        """Write this rank's share."""
        from safetensors.torch import save_file

        tensors = {name: tensor.contiguous() for name, tensor in self._kept.items()}
        save_file(tensors, str(directory / FILE.format(rank=self._rank)))

    def load(self, directory: Path) -> bool:
        """Read this rank's share; False where none was written.

        Raises:
            CheckpointDamaged: a part is missing.

        """
        from safetensors import safe_open

        own = [directory / FILE.format(rank=self._rank)]
        files = own if self._divided else sorted(directory.glob(FILE.format(rank="*")))
        if not any(file.exists() for file in files):
            return False
        missing = set(self._mine())
        self.take()
        for file in files:  # where tensors are whole, another number of ranks may have written them
            with safe_open(str(file), framework="pt") as written:
                for name in missing & set(written.keys()):
                    self._kept[name].copy_(written.get_tensor(name))
                missing -= set(written.keys())
        if missing:
            raise CheckpointDamaged(
                f"the reference in {directory} must hold every trained tensor, {len(missing)} are missing, "
                f"{sorted(missing)[:3]} for example; remove the folder to use the checkpoint before it"
            )
        return True

    def _mine(self) -> list[str]:
        return [name for name in self._parameters if self._divided or self._owner[name] == self._rank]

    def _local(self, name: str) -> Tensor:
        """What this rank holds of a parameter."""
        parameter = self._parameters[name]
        local: Tensor = parameter.ds_tensor.data if self._divided else parameter.data  # type: ignore[attr-defined]
        return local

    @torch.no_grad()
    def _exchange(self) -> None:
        for name, parameter in self._parameters.items():
            local = self._local(name)
            if name in self._kept:
                policy = local.clone()
                local.copy_(self._kept[name])
                self._kept[name].copy_(policy)
            if self._divided:
                _renew_whole(parameter)
            elif self._ranks > 1:
                distributed.broadcast(local, src=self._owner[name])


def _renew_whole(parameter: Tensor) -> None:
    """Small parameters may lie whole on every rank beside their parts (ZeRO 3): make them of the parts again."""
    from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus

    if parameter.ds_status is not ZeroParamStatus.AVAILABLE:  # type: ignore[attr-defined]
        return
    part: Tensor = parameter.ds_tensor.data  # type: ignore[attr-defined]
    whole = part.new_empty(part.numel() * distributed.get_world_size())
    distributed.all_gather_into_tensor(whole, part.contiguous())
    parameter.data.copy_(whole[: parameter.numel()].view_as(parameter))


def _owners(elements: Mapping[str, int], ranks: int) -> dict[str, int]:
    """Share tensors out over ranks: the largest first, each to the rank with the fewest elements."""
    load = [(0, rank) for rank in range(ranks)]
    owner = {}
    for name in sorted(elements, key=lambda name: (-elements[name], name)):
        held, rank = heapq.heappop(load)
        owner[name] = rank
        heapq.heappush(load, (held + elements[name], rank))
    return owner
