"""One engine made of many: rank 0 gives an order and does its own share of it, the other ranks follow.

The loop and the handler talk to `RankedEngine` as they would to the engine of a single rank. Between two orders the
followers wait for the next one and hold no collective open, so rank 0 may send weights to the rollout meanwhile.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pacs.errors import DeadlineExceeded, ServiceFailed
from pacs.transport.manifest import TensorMeta
from services.learner.batches import Batch
from services.learner.engine import Coefficients, SequenceLogprobs, StepOutcome
from services.learner.one_pass import GroupCoefficients
from services.learner.orders import Order, batch_of, batch_order

if TYPE_CHECKING:
    from services.learner.deepspeed_engine import DeepSpeedEngine
    from services.learner.order_channel import OrderChannel

__all__ = ["RankedEngine", "follow"]

LOST_SECONDS = 5.0  # a rank that ends is noticed within milliseconds; a machine under load takes longer

T = TypeVar("T")


class RankedEngine:
    """See the module and `services.learner.engine.TrainingEngine`.

    Args:
        engine: of rank 0.
        channel: to the others.
        lost_within: waits so many seconds for the news that another rank has ended, and returns it or None.

    """

    def __init__(
        self,
        engine: "DeepSpeedEngine",
        channel: "OrderChannel",
        lost_within: Callable[[float], ServiceFailed | None] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._channel = channel
        self._lost_within = lost_within
        self._batch: Batch | None = None
        self.in_step = True  # whether all ranks have done the last order, as far as rank 0 can tell

    @property
    def backend(self) -> str:
        """How weights travel: gloo from CPU, nccl from CUDA."""
        return self._engine.backend

    def logprobs(self, batch: Batch, rows: NDArray[np.int64], *, whole_groups: bool = False) -> SequenceLogprobs:
        """Log-probs of some rows' responses, each rank computing some of them."""
        self._agree_on(batch)
        order = Order("logprobs", {"whole_groups": whole_groups}, {"rows": rows})
        return self._together(order, lambda: self._engine.logprobs(batch, rows, whole_groups=whole_groups))

    def backward(
        self,
        batch: Batch,
        rows: NDArray[np.int64],
        coefficient_N: NDArray[np.float64],
        value_coefficient_N: NDArray[np.float64] | None = None,
    ) -> SequenceLogprobs:
        """Accumulate the gradient of Σ coefficient · logp, each rank its own rows'; returns their log-probs."""
        self._agree_on(batch)
        arrays: dict[str, NDArray[Any]] = {"rows": rows, "coefficient_N": coefficient_N}
        if value_coefficient_N is not None:
            arrays["value_coefficient_N"] = value_coefficient_N
        order = Order("backward", arrays=arrays)
        return self._together(order, lambda: self._engine.backward(batch, **arrays))

    def one_pass(self, batch: Batch, rows: NDArray[np.int64], coefficients: Coefficients) -> SequenceLogprobs:
        """Accumulate the gradient of whole groups, each rank making its own groups' coefficients."""
        self._agree_on(batch)
        order = Order("one_pass", arrays={"rows": rows, **coefficients.arrays()})
        return self._together(order, lambda: self._engine.one_pass(batch, rows, coefficients))

    def step(self) -> StepOutcome:
        """Apply the accumulated gradient on all ranks, or on none."""
        return self._together(Order("step"), self._engine.step)

    def discard_gradient(self) -> None:
        """Clear the accumulated gradient without a step."""
        self._together(Order("discard_gradient"), self._engine.discard_gradient)

    def reset_optimizer(self, *, warm_up: bool) -> None:
        """Make the optimizer as freshly built around the current weights; the schedule too, if it is to `warm_up`."""
        order = Order("reset_optimizer", {"warm_up": warm_up})
        self._together(order, lambda: self._engine.reset_optimizer(warm_up=warm_up))

    @property
    def at_reference(self) -> bool:
        """Whether the weights are the reference's."""
        return self._engine.at_reference

    def take_reference(self) -> None:
        """Make the reference what the policy is now, each rank keeping its share."""
        self._together(Order("take_reference"), self._engine.take_reference)

    def reference_logprobs(
        self, batch: Batch, parts: Sequence[NDArray[np.int64]], *, whole_groups: Sequence[bool]
    ) -> list[SequenceLogprobs]:
        """Log-probs under the reference of each part's rows."""
        self._agree_on(batch)
        arrays = {str(number): rows for number, rows in enumerate(parts)}
        order = Order("reference_logprobs", {"whole_groups": list(whole_groups)}, arrays)
        return self._together(order, lambda: self._engine.reference_logprobs(batch, parts, whole_groups=whole_groups))

    def probe(self, token_ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """Log-probs at temperature 1 of tokens 1…T-1."""
        return self._together(Order("probe", arrays={"token_ids": token_ids}), lambda: self._engine.probe(token_ids))

    def manifest(self) -> list[TensorMeta]:
        """Names, dtypes and shapes of `named_tensors`, in its order."""
        return self._engine.manifest()

    def named_tensors(self) -> Iterator[tuple[str, Any]]:
        """The policy's tensors, gathered a portion at a time: each is complete before the next is ordered."""
        if not self._engine.weights_divided:
            yield from self._engine.named_tensors()
            return
        for names in self._engine.portions():
            order = Order("whole_tensors", {"names": names})
            yield from self._together(order, functools.partial(self._engine.whole_tensors, names))

    def save(self, directory: Path) -> None:
        """Write every rank's part into one folder, which all of them must reach."""
        self._together(Order("save", {"directory": str(directory)}), lambda: self._engine.save(directory))

    def load(self, directory: Path) -> None:
        """Read what `save` wrote; refused before any rank is asked where they cannot."""
        self._engine.check_layout(directory)
        self._together(Order("load", {"directory": str(directory)}), lambda: self._engine.load(directory))

    def export(self, directory: Path) -> None:
        """Write the policy in Hugging Face format, tokenizer included."""
        self._engine.write_export(directory, self.named_tensors())

    def describe(self) -> Mapping[str, Any]:
        """Parameters, dtype, device, how they are divided and what computes log-probs."""
        return self._engine.describe()

    def dismiss(self) -> None:
        """Let the followers end."""
        self._channel.give(Order("stop"))

    def _agree_on(self, batch: Batch) -> None:
        if batch is not self._batch:
            self._together(batch_order(batch), lambda: None)
            self._batch = batch

    def _together(self, order: Order, own_share: Callable[[], T]) -> T:
        self.in_step = False
        try:
            self._channel.give(order)
            result = own_share()
        except RuntimeError as error:  # torch's: in a collective that another rank has left, or this rank's own
            if (lost := self._lost_within(LOST_SECONDS)) is not None:
                raise lost from error
            if "timed out" in str(error).lower():
                from services.learner.world import EXCHANGE_SECONDS

                waited_for = f"all ranks of the learner to do their part of '{order.name}'"
                raise DeadlineExceeded(waited_for, EXCHANGE_SECONDS) from error
            raise
        self.in_step = True
        return result


def follow(engine: "DeepSpeedEngine", channel: "OrderChannel") -> None:
    """Carry out rank 0's orders on another rank until it says stop.

    Raises:
        ServiceFailed: rank 0 is gone.

    """
    batch: Batch | None = None
    while (order := channel.take()).name != "stop":
        if order.name == "batch":
            batch = batch_of(order)
        else:
            _ACTIONS[order.name](engine, batch, order)


_ACTIONS: Mapping[str, "Callable[[DeepSpeedEngine, Any, Order], object]"] = {
    "logprobs": lambda engine, batch, order: engine.logprobs(batch, order.arrays["rows"], **order.arguments),
    "backward": lambda engine, batch, order: engine.backward(batch, **order.arrays),
    "one_pass": lambda engine, batch, order: engine.one_pass(
        batch,
        order.arrays["rows"],
        GroupCoefficients.of_arrays(engine.config, batch, order.arrays["rows"], order.arrays),
    ),
    "step": lambda engine, _, order: engine.step(),
    "discard_gradient": lambda engine, _, order: engine.discard_gradient(),
    "reset_optimizer": lambda engine, _, order: engine.reset_optimizer(**order.arguments),
    "take_reference": lambda engine, _, order: engine.take_reference(),
    "reference_logprobs": lambda engine, batch, order: engine.reference_logprobs(
        batch, list(order.arrays.values()), **order.arguments
    ),
    "probe": lambda engine, _, order: engine.probe(**order.arrays),
    "whole_tensors": lambda engine, _, order: engine.whole_tensors(**order.arguments),
    "save": lambda engine, _, order: engine.save(Path(order.arguments["directory"])),
    "load": lambda engine, _, order: engine.load(Path(order.arguments["directory"])),
}
