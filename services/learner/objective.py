"""From the settings to the maths: log-probs and labels in, loss and coefficients out, for one optimizer step.

Shapes: as in `step_signal.py`.
"""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pacs.runtime.config import AlgorithmSection, RunConfig
from services.learner.batches import Batch
from services.learner.ppo_objective import Ppo
from services.learner.step_signal import (
    Signal,
    StepLogprobs,
    engine_logprobs,
    importance_weighted,
    select_sequences,
)

if TYPE_CHECKING:
    from torch import Tensor

    from pacs.algo import Selection

__all__ = ["Objective", "make_objective"]


class Objective(Protocol):
    """What is optimised.

    Where the policy is still the one of the batch's start and the reference, most coefficients follow from labels
    alone: only differences of log-probs enter them, and those are 0. Then nothing need be computed beforehand.

    Args:
        reads_start: even there it needs log-probs, not only their differences.
        reads_old: needs log-probs of the batch's start where the policy has moved since, or is not the reference.
        has_reference: needs log-probs of a reference.
        by_group: a group's coefficients follow from its own log-probs, so that whole groups may take one pass.

    """

    reads_start: bool
    reads_old: bool
    has_reference: bool
    by_group: bool

    def select(self, batch: Batch) -> "Selection":
        """Decide which sequences take part, and under which label; from labels alone."""

    def teaching(self, batch: Batch, selection: "Selection") -> NDArray[np.bool_]:
        """Tell which sequences of the batch may have a coefficient; from labels alone."""

    def __call__(
        self,
        logprobs: StepLogprobs,
        batch: Batch,
        selection: "Selection",
        rows: NDArray[np.int64],
        *,
        step_rows: NDArray[np.int64] | None = None,
    ) -> Signal:
        """Compute the signal of a step, or of a share of it.

        Args:
            logprobs: of the responses of `rows`.
            batch: the whole batch.
            selection: of the whole batch, from `select`.
            rows: of the batch, whole groups.
            step_rows: the step's, by whose number sums are divided; None: `rows`.

        """


def make_objective(config: RunConfig) -> Objective:
    """The objective that the settings name."""
    if config.algorithm.name == "pacs":
        return _Pacs(config.algorithm)
    if config.algorithm.name == "ppo":
        return Ppo(config.algorithm)
    return _PolicyGradient(config.algorithm, config.rollout.max_response_tokens)


class _Pacs:
    """The classifier."""

    by_group = True

    def __init__(self, algorithm: AlgorithmSection) -> None:
        self._algorithm = algorithm
        self.has_reference = algorithm.log_ratio == "log_ratio"
        self.reads_old = algorithm.importance_cap > 0
        self.reads_start = self.reads_old or not self.has_reference

    def select(self, batch: Batch) -> "Selection":
        return select_sequences(batch, self._algorithm, dropped_labels_count=False)

    def teaching(self, batch: Batch, selection: "Selection") -> NDArray[np.bool_]:
        return selection.trained_B.numpy()

    def __call__(
        self,
        logprobs: StepLogprobs,
        batch: Batch,
        selection: "Selection",
        rows: NDArray[np.int64],
        *,
        step_rows: NDArray[np.int64] | None = None,
    ) -> Signal:
        import torch

        from pacs.algo import coefficients, pacs_loss

        settings, length_b = self._algorithm, batch.response_tokens_B[rows]
        counted_b = selection.trained_B[rows if step_rows is None else step_rows]
        tensors = (
            torch.from_numpy(logprobs.policy_b.sum_B),
            torch.from_numpy(logprobs.reference_b.sum_B) if self.has_reference else None,
            selection.label_B[rows],
            selection.trained_B[rows],
        )
        options: dict[str, Any] = {
            "group_size": batch.group_size,
            "beta": settings.beta,
            "score": settings.score,
            "class_weight": settings.class_weight,
            "label_smoothing": settings.label_smoothing,
            "length_B": torch.from_numpy(length_b),
            "count": max(1, int(counted_b.sum())),
        }
        loss = pacs_loss(*tensors, **options)
        coefficient_b = coefficients(*tensors, **options, gradient=settings.gradient).numpy()
        if settings.importance_cap:
            engine_b = engine_logprobs(batch, rows).sum_B
            coefficient_b = importance_weighted(coefficient_b, logprobs.old_b.sum_B, engine_b, settings.importance_cap)
        return Signal(
            float(loss.loss),
            np.repeat(coefficient_b, length_b),
            loss.score_PG.flatten().numpy(),
            loss.weight_PG.flatten().numpy(),
        )


class _PolicyGradient:
    """A baseline: an advantage of each sequence, and a loss of its actions' ratios π_θ/π_old."""

    has_reference = False
    reads_old = True
    by_group = True

    def __init__(self, algorithm: AlgorithmSection, max_response_tokens: int) -> None:
        self._algorithm = algorithm
        self.reads_start = algorithm.importance_cap > 0
        self._max_response_tokens = max_response_tokens

    def select(self, batch: Batch) -> "Selection":
        return select_sequences(batch, self._algorithm, dropped_labels_count=True)

    def teaching(self, batch: Batch, selection: "Selection") -> NDArray[np.bool_]:
        found: NDArray[np.bool_] = self._advantage_B(batch, selection).numpy() != 0
        return found

    def _advantage_B(self, batch: Batch, selection: "Selection") -> "Tensor":
        from pacs.algo import BASELINES

        advantage_PG = BASELINES[self._algorithm.name].advantage(
            selection.label_B.double().view(-1, batch.group_size), selection.judged_B.view(-1, batch.group_size)
        )
        return advantage_PG.flatten().masked_fill(~selection.trained_B, 0.0)

    def __call__(
        self,
        logprobs: StepLogprobs,
        batch: Batch,
        selection: "Selection",
        rows: NDArray[np.int64],
        *,
        step_rows: NDArray[np.int64] | None = None,
    ) -> Signal:
        import torch

        from pacs.algo import BASELINES, Step, differentiate

        settings, baseline = self._algorithm, BASELINES[self._algorithm.name]
        length_b, engine_b = batch.response_tokens_B[rows], engine_logprobs(batch, rows)
        counted = rows if step_rows is None else step_rows
        counted = counted[selection.trained_B.numpy()[counted]]
        step = Step(
            advantage_B=self._advantage_B(batch, selection)[rows],
            length_B=torch.from_numpy(length_b),
            completions=max(1, len(counted)),
            tokens=max(1, int(batch.response_tokens_B[counted].sum())),
            max_response_tokens=self._max_response_tokens,
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
        )
        by_token = baseline.level == "token"
        policy, old, engine = (
            s.tokens_N if by_token else s.sum_B for s in (logprobs.policy_b, logprobs.old_b, engine_b)
        )
        row = torch.from_numpy(np.repeat(np.arange(len(rows)), length_b) if by_token else np.arange(len(rows)))
        old_tensor = torch.from_numpy(old)
        loss, gradient = differentiate(
            lambda logp: baseline.loss(logp, old_tensor, row, step), torch.from_numpy(policy)
        )
        coefficient = gradient.numpy()
        if settings.importance_cap:
            coefficient = importance_weighted(coefficient, old, engine, settings.importance_cap)
        return Signal(float(loss), coefficient if by_token else np.repeat(coefficient, length_b))
