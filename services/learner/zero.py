"""Where DeepSpeed keeps gradients and optimizer state at each ZeRO stage: reduced, measured, cleared, built anew.

DeepSpeed has one optimizer wrapper per stage and precision, each with its own names and its own rules for gradients
that are not finite. Here they look alike, so that the norm, clipping, skipping and the reset are the same everywhere.
Written against DeepSpeed 0.19: a wrapper that is not known is refused at start.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import torch  # noqa: TID253  # this file and deepspeed_engine.py wrap DeepSpeed and its tensors
from torch import Tensor  # noqa: TID253

from pacs.errors import BadInput

__all__ = ["GradientStore", "gradient_store"]


class GradientStore(Protocol):
    """Gradients and optimizer state of one rank."""

    partitioned: bool  # whether each rank holds its own part of the gradient, or all of them the whole

    def reduce(self) -> None:
        """Bring the accumulated gradient, averaged over the ranks, to where the optimizer takes it from; collective."""

    def parts(self) -> list[Tensor]:
        """This rank's reduced gradient, as the tensors that the optimizer will read: change them in place."""

    def clear(self) -> None:
        """Forget the gradient, reduced or not."""

    def rebuild_state(self) -> None:
        """Make the optimizer's state what a fresh one has: no moments, no steps, masters equal to the weights."""


class _Whole:
    """Stage 0 in float32: a plain optimizer, gradients on the parameters of every rank."""

    partitioned = False

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def reduce(self) -> None:
        if self._engine.dp_world_size > 1:
            self._engine.allreduce_gradients()

    def parts(self) -> list[Tensor]:
        return [p.grad for p in self._engine.module.parameters() if p.grad is not None]

    def clear(self) -> None:
        self._engine.module.zero_grad()

    def rebuild_state(self) -> None:
        self._engine.optimizer.state.clear()


class _Wrapped(ABC):
    """What the three wrappers have in common: an optimizer inside, with float32 master weights."""

    partitioned = True

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._wrapper = engine.optimizer

    def rebuild_state(self) -> None:
        self._wrapper.optimizer.state.clear()
        self._wrapper.refresh_fp32_params()
        for master in self._masters():
            master.grad = None
        self._wrapper._hp_optimizer_states_linked = False  # links to the old moments would be read

    @abstractmethod
    def _masters(self) -> Iterable[Tensor]:
        """The float32 weights that the optimizer changes."""


class _Bfloat16(_Wrapped):
    """Stages 0 and 1 in bfloat16: the whole gradient in float32 on every rank, each reads its part of the sum."""

    def reduce(self) -> None:
        if self._engine.dp_world_size > 1:
            self._engine.allreduce_gradients()

    def parts(self) -> list[Tensor]:
        return list(self._wrapper.fp32_groups_gradient_flat_partition)

    def clear(self) -> None:
        self._wrapper.zero_grad()

    def _masters(self) -> Iterable[Tensor]:
        return self._wrapper.fp32_groups_flat_partition  # type: ignore[no-any-return]  # DeepSpeed has no types


class _Partitioned12(_Wrapped):
    """Stages 1 and 2: one flat partition of the gradient a rank, as a list of pieces."""

    def reduce(self) -> None:
        if self._wrapper.partition_gradients:  # stage 2 has reduced in every backward pass
            self._wrapper.finalize_gradient_accumulation_boundary()
        else:
            self._engine.allreduce_gradients()

    def parts(self) -> list[Tensor]:
        return list(_pieces(self._wrapper.averaged_gradients))

    def clear(self) -> None:
        self._wrapper.zero_grad()
        self._wrapper.averaged_gradients.clear()
        self._wrapper.all_grad_tensors.clear()

    def _masters(self) -> Iterable[Tensor]:
        return self._wrapper.single_partition_of_fp32_groups  # type: ignore[no-any-return]


class _Partitioned3(_Wrapped):
    """Stage 3: a part of every parameter's gradient a rank."""

    def reduce(self) -> None:
        self._wrapper.finalize_gradient_accumulation_boundary()

    def parts(self) -> list[Tensor]:
        return list(_pieces(self._wrapper.averaged_gradients))

    def clear(self) -> None:
        self._wrapper.zero_grad()
        self._wrapper.averaged_gradients.clear()

    def _masters(self) -> Iterable[Tensor]:
        return self._wrapper.fp32_partitioned_groups_flat  # type: ignore[no-any-return]


def gradient_store(engine: Any) -> GradientStore:
    """The store of a DeepSpeed engine.

    Raises:
        BadInput: an optimizer whose state a reset could not reach.

    """
    from deepspeed.runtime.bf16_optimizer import BF16_Optimizer
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

    stores: dict[type, type[Any]] = {
        torch.optim.AdamW: _Whole,
        BF16_Optimizer: _Bfloat16,
        DeepSpeedZeroOptimizer: _Partitioned12,
        DeepSpeedZeroOptimizer_Stage3: _Partitioned3,
    }
    wrapper = type(engine.optimizer)
    inner = type(getattr(engine.optimizer, "optimizer", engine.optimizer))
    if wrapper not in stores or inner is not torch.optim.AdamW:
        raise BadInput(
            "a reset must be able to build the optimizer's state anew, and knows "
            f"{[known.__name__ for known in stores]} around AdamW, got {wrapper.__name__} around {inner.__name__}; "
            "install the DeepSpeed version that the project pins"
        )
    store: GradientStore = stores[wrapper](engine)
    return store


def _pieces(groups: dict[int, Any]) -> Iterator[Tensor]:
    for pieces in groups.values():
        yield from pieces or ()
