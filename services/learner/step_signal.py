"""What an objective is given and what it answers, and what all objectives do alike.

Shapes: B sequences of the batch, b those of the step, n the step's response tokens, one sequence after the other.
Everything is in float64: it is a few numbers a sequence or token.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pacs.runtime.config import AlgorithmSection
from services.learner.batches import Batch
from services.learner.engine import SequenceLogprobs

if TYPE_CHECKING:
    from pacs.algo import Selection

__all__ = ["Signal", "StepLogprobs", "ValueSignal", "engine_logprobs", "importance_weighted", "select_sequences"]


@dataclass(frozen=True)
class StepLogprobs:
    """Log-probs of an optimizer step's responses, in one packing.

    Args:
        policy_b: now.
        old_b: at the start of the batch.
        reference_b: under the reference.
        start_values_B: the value function before each token of the *batch*, as it was at its start; empty without one.

    """

    policy_b: SequenceLogprobs
    old_b: SequenceLogprobs
    reference_b: SequenceLogprobs
    start_values_B: tuple[NDArray[np.float32], ...] = ()

    @property
    def log_ratio_b(self) -> NDArray[np.float64]:
        """log π_θ − log π_ref of each response, nats."""
        return self.policy_b.sum_B - self.reference_b.sum_B


@dataclass(frozen=True)
class ValueSignal:
    """Of one optimizer step, for the value function.

    Args:
        coefficient_n: ∂L/∂V before each response token.
        explained_variance: of the returns of the whole batch, at its start; None where they do not vary.

    """

    loss: float
    coefficient_n: NDArray[np.float64]
    explained_variance: float | None


@dataclass(frozen=True)
class Signal:
    """Of one optimizer step.

    Args:
        coefficient_n: ∂L/∂logp of each response token.
        score_b: ψ of each sequence; None where the objective is no classifier.
        weight_b: the class weight of each sequence, 0 where it does not count; None likewise.
        value: for the value function; None where the objective has none.

    """

    loss: float
    coefficient_n: NDArray[np.float64]
    score_b: NDArray[np.float64] | None = None
    weight_b: NDArray[np.float32] | None = None
    value: ValueSignal | None = None

    @property
    def coefficients(self) -> tuple[NDArray[np.float64], ...]:
        """Of log-probs and, where there is a value function, of values."""
        return (self.coefficient_n,) if self.value is None else (self.coefficient_n, self.value.coefficient_n)


def select_sequences(batch: Batch, algorithm: AlgorithmSection, *, dropped_labels_count: bool) -> "Selection":
    """As `pacs.algo.select` does it, by the settings."""
    import torch

    from pacs.algo import select

    return select(
        torch.from_numpy(batch.label_B),
        torch.from_numpy(batch.valid_B),
        torch.from_numpy(batch.truncated_B),
        group_size=batch.group_size,
        truncated=algorithm.truncated,
        uniform=algorithm.uniform_groups,
        dropped_labels_count=dropped_labels_count,
    )


def engine_logprobs(batch: Batch, rows: NDArray[np.int64]) -> SequenceLogprobs:
    """The log-probs of the engine that sampled; it gives no entropy."""
    return SequenceLogprobs(tuple(batch.engine_logprobs_B[row] for row in rows), entropy=float("nan"))


def importance_weighted(
    coefficient: NDArray[np.float64], old: NDArray[np.float64], engine: NDArray[np.float64], cap: float
) -> NDArray[np.float64]:
    """Multiply by truncated importance weights what is not 0: what takes no part may have no log-prob."""
    import torch

    from pacs.algo import importance_weights

    taking_part = coefficient != 0
    weighted = coefficient.copy()
    weights = importance_weights(torch.from_numpy(old[taking_part]), torch.from_numpy(engine[taking_part]), cap=cap)
    weighted[taking_part] *= weights.numpy()
    return weighted
