"""One batch of labelled groups in, optimizer steps and the figures of the batch out. Knows no Redis and no DeepSpeed.

Two passes (docs/algorithm.md): log-probs without gradient give each token's coefficient c = ∂L/∂logp; the gradient is
then that of Σ c·logp in any micro-batches. Where the policy is still that of the batch's start, one pass serves both.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pacs.errors import ServiceFailed
from pacs.runtime.config import RunConfig
from pacs.wire.groups import LabeledGroup
from services.learner.batches import Batch, make_batch
from services.learner.engine import SequenceLogprobs, StepOutcome, TrainingEngine
from services.learner.figures import batch_figures, gap_to_engine, score_figures
from services.learner.objective import make_objective

if TYPE_CHECKING:
    from pacs.algo import Selection

__all__ = ["LearnerHandler"]


@dataclass
class _Progress:
    """What accumulates over a batch's optimizer steps; no scores where the objective is no classifier."""

    outcomes: list[StepOutcome] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    scores: list[NDArray[np.float64]] = field(default_factory=list)


class LearnerHandler:
    """Trains on batches.

    Args:
        config: of the run.
        engine: holds the policy.

    """

    def __init__(self, config: RunConfig, engine: TrainingEngine) -> None:
        self._config = config
        self._engine = engine
        self._objective = make_objective(config)
        self._skipped_in_a_row = 0

    def train(self, groups: Sequence[LabeledGroup], policy_version: int) -> dict[str, Any]:
        """Take the optimizer steps of one batch.

        Args:
            groups: ordered by sequence number.
            policy_version: the version the weights are at now, for staleness.

        Raises:
            ServiceFailed: too many steps in a row were not finite; names the groups.

        """
        batch = make_batch(groups)
        started = time.monotonic()
        selection = self._objective.select(batch)
        old = self._engine.logprobs(batch, np.arange(len(batch.label_B)))
        passed = time.monotonic()
        progress = _Progress()
        for rows in self._minibatches(batch):
            self._optimizer_step(batch, selection, rows, old, progress)
        self._stop_if_not_finite(groups, progress)
        return {
            **batch_figures(groups, batch, policy_version),
            **score_figures(progress.scores, selection, batch.response_tokens_B),
            "trained_completions": int(selection.trained_B.sum()),
            "loss": float(np.mean(progress.losses)),
            "grad_norm": float(np.mean([o.grad_norm for o in progress.outcomes])),
            "learning_rate": progress.outcomes[-1].learning_rate,
            "skipped": not any(o.applied for o in progress.outcomes),
            "entropy": old.entropy,
            "logprob_gap_max": gap_to_engine(groups, old.tokens_B, policy_version),
            "seconds": {"logprobs": passed - started, "update": time.monotonic() - passed},
        }

    def _minibatches(self, batch: Batch) -> list[NDArray[np.int64]]:
        """Rows of each optimizer step: whole groups, so that every group's scores come from one policy."""
        per_step = (self._config.learner.minibatch_groups or self._config.run.groups_per_step) * batch.group_size
        rows = np.arange(len(batch.label_B))
        return [rows[start : start + per_step] for start in range(0, len(rows), per_step)]

    def _optimizer_step(
        self,
        batch: Batch,
        selection: "Selection",
        rows: NDArray[np.int64],
        old_B: SequenceLogprobs,
        progress: _Progress,
    ) -> None:
        moved = any(outcome.applied for outcome in progress.outcomes)
        old_b = old_B.of(rows)
        policy_b = self._engine.logprobs(batch, rows) if moved else old_b
        signal = self._objective(policy_b, old_b, batch, selection, rows)
        progress.losses.append(signal.loss)
        if signal.score_b is not None:
            progress.scores.append(signal.score_b)
        coefficient_N = np.zeros(int(batch.response_tokens_B.sum()))
        coefficient_N[batch.places(rows)] = signal.coefficient_n
        row_n = np.repeat(rows, batch.response_tokens_B[rows])
        contributing = np.unique(row_n[signal.coefficient_n != 0])
        if not np.all(np.isfinite(signal.coefficient_n)):
            self._engine.discard_gradient()
            progress.outcomes.append(StepOutcome(float("nan"), applied=False, learning_rate=0.0))
            return
        if len(contributing):
            self._engine.backward(batch, contributing, coefficient_N)
        progress.outcomes.append(self._engine.step())

    def _stop_if_not_finite(self, groups: Sequence[LabeledGroup], progress: _Progress) -> None:
        for outcome in progress.outcomes:
            self._skipped_in_a_row = 0 if outcome.applied else self._skipped_in_a_row + 1
        limit = self._config.learner.max_nonfinite_steps
        if self._skipped_in_a_row >= limit:
            ids = [g.group.prompt.sequence for g in groups]
            raise ServiceFailed(
                f"loss or gradient must be finite, but {self._skipped_in_a_row} optimizer steps in a row were not "
                f"(limit learner.max_nonfinite_steps={limit}); last groups: {ids}; lower learner.learning_rate or look "
                "at these groups"
            )
