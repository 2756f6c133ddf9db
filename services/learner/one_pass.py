"""The coefficients of whole groups, made where their log-probs are: on every rank, between forward and backward.

Shapes: b sequences of an optimizer step.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from pacs.runtime.config import RunConfig
from services.learner.batches import Batch
from services.learner.engine import SequenceLogprobs
from services.learner.objective import Objective, make_objective
from services.learner.step_signal import StepLogprobs

if TYPE_CHECKING:
    from pacs.algo import Selection

__all__ = ["GroupCoefficients"]


@dataclass(frozen=True)
class GroupCoefficients:
    """See `services.learner.engine.Coefficients`.

    Args:
        objective: one that is `by_group`.
        batch: the whole batch.
        selection: of the whole batch.
        step_rows: of the optimizer step, ascending.
        old_b: at the start of the batch; None: the policy still is what it was, or nothing reads it.
        reference_b: under the reference; None: as `old_b`.

    """

    objective: Objective
    batch: Batch
    selection: "Selection"
    step_rows: NDArray[np.int64]
    old_b: SequenceLogprobs | None
    reference_b: SequenceLogprobs | None

    def __call__(self, rows: NDArray[np.int64], policy: SequenceLogprobs) -> NDArray[np.float64]:
        """Of each response token of `rows`, whole groups."""
        places = np.searchsorted(self.step_rows, rows)
        old = policy if self.old_b is None else self.old_b.of(places)
        reference = old if self.reference_b is None else self.reference_b.of(places)
        logprobs = StepLogprobs(policy, old, reference)
        return self.objective(logprobs, self.batch, self.selection, rows, step_rows=self.step_rows).coefficient_n

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What `of_arrays` makes the same coefficients from."""
        known = {"old": self.old_b, "reference": self.reference_b}
        return {name: np.concatenate(logprobs.tokens_B) for name, logprobs in known.items() if logprobs is not None}

    @classmethod
    def of_arrays(
        cls, config: RunConfig, batch: Batch, step_rows: NDArray[np.int64], arrays: Mapping[str, NDArray[Any]]
    ) -> Self:
        """The coefficients again, in another process."""
        objective = make_objective(config)
        ends = np.cumsum(batch.response_tokens_B[step_rows])[:-1]
        old_b, reference_b = (
            SequenceLogprobs(tuple(np.split(arrays[name], ends)), float("nan")) if name in arrays else None
            for name in ("old", "reference")
        )
        return cls(objective, batch, objective.select(batch), step_rows, old_b, reference_b)
