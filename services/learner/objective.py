"""From the settings to the maths: log-prob sums and labels in, loss, scores and coefficients out, for one step."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pacs.runtime.config import AlgorithmSection
from services.learner.batches import Batch

__all__ = ["Objective", "Signal"]


@dataclass(frozen=True)
class Signal:
    """Of one optimizer step's b sequences.

    Args:
        coefficient_b: ∂L/∂logp of each.
        score_b: ψ of each.

    """

    loss: float
    coefficient_b: NDArray[np.float64]
    score_b: NDArray[np.float64]


class Objective:
    """PACS as configured."""

    def __init__(self, algorithm: AlgorithmSection) -> None:
        self._algorithm = algorithm

    def __call__(
        self, policy_b: NDArray[np.float64], reference_b: NDArray[np.float64], batch: Batch, rows: NDArray[np.int64]
    ) -> Signal:
        """Compute the step's signal in float64; it is a few numbers a group."""
        import torch

        from pacs.algo import coefficients, pacs_loss

        tensors = (
            torch.from_numpy(policy_b),
            torch.from_numpy(reference_b),
            torch.from_numpy(batch.label_B[rows]),
            torch.from_numpy(batch.valid_B[rows]),
        )
        count = max(1, int(batch.valid_B[rows].sum()))
        loss = pacs_loss(
            *tensors,
            group_size=batch.group_size,
            beta=self._algorithm.beta,
            score=self._algorithm.score,
            class_weight=self._algorithm.class_weight,
            count=count,
        )
        coefficient_b = coefficients(
            *tensors,
            group_size=batch.group_size,
            beta=self._algorithm.beta,
            score=self._algorithm.score,
            class_weight=self._algorithm.class_weight,
            count=count,
            gradient=self._algorithm.gradient,
        )
        return Signal(float(loss.loss), coefficient_b.numpy(), loss.score_PG.flatten().numpy())
