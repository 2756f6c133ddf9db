"""A training engine without a model, for tests of the learner: a policy of one distribution for all places."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacs.transport.manifest import TensorMeta
from services.learner.batches import Batch
from services.learner.engine import Coefficients, SequenceLogprobs, StepOutcome

__all__ = ["FakeTrainingEngine"]


class FakeTrainingEngine:
    """See `services.learner.engine.TrainingEngine`. Every token is drawn from softmax(logits), whatever precedes it.

    The value function has a number for each token that can come last before the one to draw. Plain gradient descent on
    logits and values, so the effect of a batch can be followed by hand.

    Args:
        vocabulary: number of token ids.
        learning_rate: of the descent.

    """

    def __init__(self, vocabulary: int = 64, learning_rate: float = 0.5) -> None:
        self.logits = np.zeros(vocabulary)
        self.values = np.zeros(vocabulary)
        self.learning_rate = learning_rate
        self.calls: list[str] = []
        self.poison_rows: tuple[int, ...] = ()
        self.poison_gradient = False
        self.at_reference = False
        self._gradient = np.zeros(vocabulary)
        self._value_gradient = np.zeros(vocabulary)
        self._reference = self.logits.copy()

    @property
    def backend(self) -> str:
        """Of an engine on the CPU."""
        return "gloo"

    @property
    def _log_softmax(self) -> NDArray[np.float64]:
        shifted = self.logits - self.logits.max()
        return np.asarray(shifted - np.log(np.exp(shifted).sum()))

    def logprobs(self, batch: Batch, rows: NDArray[np.int64], *, whole_groups: bool = False) -> SequenceLogprobs:
        """Log-probs of the responses; NaN for the rows in `poison_rows`."""
        self.calls.append(f"logprobs {len(rows)}{' in groups' * whole_groups}")
        return self._logprobs(batch, rows)

    def _logprobs(self, batch: Batch, rows: NDArray[np.int64]) -> SequenceLogprobs:
        logp = self._log_softmax
        tokens = [logp[self._response(batch, int(row))].astype(np.float32) for row in rows]
        poisoned = tuple(
            np.full_like(t, np.nan) if row in self.poison_rows else t for row, t in zip(rows, tokens, strict=True)
        )
        values = tuple(self.values[self._before(batch, int(row))].astype(np.float32) for row in rows)
        return SequenceLogprobs(poisoned, float(-(np.exp(logp) * logp).sum()), values)

    def backward(
        self,
        batch: Batch,
        rows: NDArray[np.int64],
        coefficient_N: NDArray[np.float64],
        value_coefficient_N: NDArray[np.float64] | None = None,
    ) -> SequenceLogprobs:
        """Add the gradient of Σ coefficient · logp + Σ value_coefficient · value."""
        self.calls.append(f"backward {rows.tolist()}")
        return self._backward(batch, rows, coefficient_N, value_coefficient_N)

    def one_pass(self, batch: Batch, rows: NDArray[np.int64], coefficients: Coefficients) -> SequenceLogprobs:
        """Add that of Σ coefficient · logp, one group after the other."""
        self.calls.append(f"one pass {rows.tolist()}")
        coefficient_N = np.zeros(int(batch.response_tokens_B.sum()))
        for group in rows.reshape(-1, batch.group_size):
            coefficient_N[batch.places(group)] = coefficients(group, self._logprobs(batch, group))
        return self._backward(batch, rows, coefficient_N, None)

    def _backward(
        self,
        batch: Batch,
        rows: NDArray[np.int64],
        coefficient_N: NDArray[np.float64],
        value_coefficient_N: NDArray[np.float64] | None,
    ) -> SequenceLogprobs:
        probabilities = np.exp(self._log_softmax)
        for row in rows:
            weights = coefficient_N[batch.places(np.array([row]))]
            weighted = np.bincount(self._response(batch, int(row)), weights, minlength=len(self.logits))
            self._gradient += weighted - weights.sum() * probabilities
            if value_coefficient_N is not None:
                np.add.at(
                    self._value_gradient,
                    self._before(batch, int(row)),
                    value_coefficient_N[batch.places(np.array([row]))],
                )
        if self.poison_gradient or set(self.poison_rows) & set(rows.tolist()):
            self._gradient[0] = np.nan
        return self._logprobs(batch, rows)

    def step(self) -> StepOutcome:
        """Descend, unless the gradient is not finite; clear it."""
        norm = float(np.linalg.norm([self._gradient, self._value_gradient]))
        applied = bool(np.isfinite(norm))
        self.calls.append("step" if applied else "skip")
        if applied and self._gradient.any():
            self.logits = self.logits - self.learning_rate * self._gradient
            self.at_reference = False
        if applied:
            self.values = self.values - self.learning_rate * self._value_gradient
        self._forget_gradient()
        return StepOutcome(norm, applied, self.learning_rate)

    def discard_gradient(self) -> None:
        """Clear the gradient."""
        self.calls.append("discard")
        self._forget_gradient()

    def probe(self, token_ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """Log-probs of all tokens but the first."""
        return self._log_softmax[token_ids[1:]].astype(np.float32)

    def reset_optimizer(self, *, warm_up: bool) -> None:
        """Nothing: plain descent has no state."""
        self.calls.append(f"reset warm_up={warm_up}")

    def take_reference(self) -> None:
        """Keep the logits."""
        self.calls.append("take reference")
        self._reference = self.logits.copy()
        self.at_reference = True

    def reference_logprobs(
        self, batch: Batch, parts: Sequence[NDArray[np.int64]], *, whole_groups: Sequence[bool]
    ) -> list[SequenceLogprobs]:
        """Log-probs under the logits that were kept."""
        in_groups = f" in groups {[n for n, whole in enumerate(whole_groups) if whole]}" if any(whole_groups) else ""
        self.calls.append(f"reference logprobs {[len(rows) for rows in parts]}{in_groups}")
        policy, self.logits = self.logits, self._reference
        logprobs = [self._logprobs(batch, rows) for rows in parts]
        self.logits = policy
        return logprobs

    def manifest(self) -> list[TensorMeta]:
        """Of the logits."""
        return [TensorMeta("logits", str(self.logits.dtype), self.logits.shape)]

    def named_tensors(self) -> Iterator[tuple[str, Any]]:
        """The logits."""
        yield "logits", self.logits

    def save(self, directory: Path) -> None:
        """Write the logits, the policy's and the reference's, and the values."""
        self.calls.append("save")
        np.save(directory / "logits.npy", np.stack([self.logits, self._reference, self.values]))

    def load(self, directory: Path) -> None:
        """Read them."""
        self.calls.append("load")
        self.logits, self._reference, self.values = np.load(directory / "logits.npy")
        self.at_reference = bool(np.array_equal(self.logits, self._reference))

    def export(self, directory: Path) -> None:
        """The same as saving."""
        self.save(directory)

    def describe(self) -> Mapping[str, Any]:
        """Its size."""
        return {"parameters": len(self.logits)}

    def _response(self, batch: Batch, row: int) -> NDArray[np.int32]:
        return batch.token_ids_B[row][batch.prompt_tokens_B[row] :]

    def _before(self, batch: Batch, row: int) -> NDArray[np.int32]:
        """The token that each response token follows."""
        return batch.token_ids_B[row][batch.prompt_tokens_B[row] - 1 : -1]

    def _forget_gradient(self) -> None:
        self._gradient = np.zeros_like(self.logits)
        self._value_gradient = np.zeros_like(self.values)
