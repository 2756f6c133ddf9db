"""What training asks of an engine; `deepspeed_engine.py` is the one that is shipped."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pacs.transport.manifest import TensorMeta
from services.learner.batches import Batch

__all__ = ["Coefficients", "SequenceLogprobs", "StepOutcome", "TrainingEngine"]


@dataclass(frozen=True)
class SequenceLogprobs:
    """Log-probs of a batch's responses under the current policy, and what else one pass gives.

    Args:
        tokens_B: of each response token, float32, nats.
        entropy: mean entropy of the predicted distributions, nats per token.
        values_B: of the value function before each response token, float32; empty where the engine has none.

    """

    tokens_B: tuple[NDArray[np.float32], ...]
    entropy: float
    values_B: tuple[NDArray[np.float32], ...] = ()

    @property
    def sum_B(self) -> NDArray[np.float64]:
        """Sum over each response, nats; summed in float64, for it is what the score is made of."""
        return np.array([tokens.sum(dtype=np.float64) for tokens in self.tokens_B])

    @property
    def tokens_N(self) -> NDArray[np.float64]:
        """Of all response tokens, one response after the other, nats."""
        return np.concatenate([np.zeros(0), *self.tokens_B])

    @property
    def values_N(self) -> NDArray[np.float64]:
        """Before all response tokens, one response after the other."""
        return np.concatenate([np.zeros(0), *self.values_B])

    def of(self, places: NDArray[np.int64]) -> "SequenceLogprobs":
        """Those of some responses, by their places here."""
        values_B = tuple(self.values_B[place] for place in places) if self.values_B else ()
        return SequenceLogprobs(tuple(self.tokens_B[place] for place in places), self.entropy, values_B)

    @classmethod
    def zeros(cls, tokens_B: NDArray[np.int64]) -> "SequenceLogprobs":
        """In place of log-probs that only differences are taken of, and those are 0."""
        return cls(tuple(np.zeros(tokens, dtype=np.float32) for tokens in tokens_B), float("nan"))


@dataclass(frozen=True)
class StepOutcome:
    """What an optimizer step did.

    Args:
        grad_norm: global norm before clipping.
        applied: False where loss or gradient was not finite and the step was skipped.
        learning_rate: of the step; None where there was nothing to step with.

    """

    grad_norm: float
    applied: bool
    learning_rate: float | None


class Coefficients(Protocol):
    """∂L/∂logp of whole groups of an optimizer step, from their log-probs alone: what one pass asks for."""

    def __call__(self, rows: NDArray[np.int64], policy: SequenceLogprobs) -> NDArray[np.float64]:
        """Of each response token of `rows`, whole groups, one response after the other."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What another process makes the same coefficients from, given batch and rows."""


class TrainingEngine(Protocol):
    """Holds the policy and its optimizer."""

    @property
    def backend(self) -> str:
        """How weights travel from where this engine keeps them: gloo from CPU, nccl from CUDA."""

    def logprobs(self, batch: Batch, rows: NDArray[np.int64], *, whole_groups: bool = False) -> SequenceLogprobs:
        """Log-probs of some rows' responses, without gradient; in the order of `rows`.

        `whole_groups`: packed as `one_pass` packs them.
        """

    def backward(
        self,
        batch: Batch,
        rows: NDArray[np.int64],
        coefficient_N: NDArray[np.float64],
        value_coefficient_N: NDArray[np.float64] | None = None,
    ) -> SequenceLogprobs:
        """Accumulate the gradient of Σ coefficient · logp over the response tokens of `rows`; returns their log-probs.

        With value coefficients, Σ value_coefficient · value is added. Both arrays have all response tokens of the
        batch, row after row; `batch.places(rows)` finds those of some.
        """

    def one_pass(self, batch: Batch, rows: NDArray[np.int64], coefficients: Coefficients) -> SequenceLogprobs:
        """Accumulate the gradient of Σ coefficient · logp of whole groups; returns their log-probs.

        The coefficients are those of the same pass's log-probs; one that is not finite makes the gradient so.
        """

    def step(self) -> StepOutcome:
        """Apply the accumulated gradient, unless it is not finite, and clear it."""

    def discard_gradient(self) -> None:
        """Clear the accumulated gradient without a step."""

    def probe(self, token_ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """Log-probs at temperature 1 of tokens 1…T-1, each given those before it: float32 [T-1], nats."""

    def reset_optimizer(self, *, warm_up: bool) -> None:
        """Make the optimizer as freshly built around the current weights; the schedule too, if it is to `warm_up`."""

    @property
    def at_reference(self) -> bool:
        """Whether the weights are the reference's: no step was applied since it was taken."""

    def take_reference(self) -> None:
        """Make the reference what the policy is now, π_ref := π_θ."""

    def reference_logprobs(
        self, batch: Batch, parts: Sequence[NDArray[np.int64]], *, whole_groups: Sequence[bool]
    ) -> list[SequenceLogprobs]:
        """Log-probs under the reference of each part's rows, each packed as `logprobs` packs them."""

    def manifest(self) -> list[TensorMeta]:
        """Names, dtypes and shapes of `named_tensors`, in its order."""

    def named_tensors(self) -> Iterator[tuple[str, Any]]:
        """The policy's tensors under their checkpoint names, tied ones once; or those of its adapters alone."""

    def save(self, directory: Path) -> None:
        """Write model, optimizer, schedule and random state."""

    def load(self, directory: Path) -> None:
        """Read what `save` wrote."""

    def export(self, directory: Path) -> None:
        """Write the policy in Hugging Face format, tokenizer included."""

    def describe(self) -> Mapping[str, Any]:
        """Parameters, dtype, device, ranks and what computes log-probs, for the log."""
