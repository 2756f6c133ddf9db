"""One batch of labelled groups in, optimizer steps and the figures of the batch out. Knows no Redis and no DeepSpeed.

Two passes (docs/algorithm.md): log-probs without gradient give each token's coefficient c = ∂L/∂logp; the gradient is
then that of Σ c·logp in any micro-batches. The first pass is left out where only differences of log-probs enter the
coefficients and all of them are 0: in the first optimizer step after the reference was taken. Elsewhere whole groups
may take forward, coefficients and backward in one pass; each optimizer step goes the way that costs less.
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
from services.learner.figures import (
    AtStart,
    batch_figures,
    drift_figures,
    finite_mean,
    gap_to_engine,
    mean_entropy,
    score_figures,
    step_figures,
    value_figures,
)
from services.learner.noise import NoiseFloor
from services.learner.objective import make_objective
from services.learner.one_pass import GroupCoefficients
from services.learner.plans import one_pass_costs_less
from services.learner.step_signal import Signal, StepLogprobs

if TYPE_CHECKING:
    from pacs.algo import Selection

__all__ = ["LearnerHandler"]


@dataclass(frozen=True)
class _Way:
    """How an optimizer step comes to its coefficients: in one pass or two, with a pass at the batch's start or not."""

    one_pass: bool
    passes_at_start: bool


@dataclass(frozen=True)
class _Minibatch:
    """An optimizer step's rows, and what is known of them before the first step of the batch; None: not needed."""

    rows: NDArray[np.int64]
    one_pass: bool
    old: SequenceLogprobs | None
    reference: SequenceLogprobs | None


@dataclass
class _Progress:
    """What accumulates over a batch's optimizer steps."""

    outcomes: list[StepOutcome] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    log_ratios: list[NDArray[np.float64]] = field(default_factory=list)
    at_start: AtStart = field(default_factory=list)
    start_values_B: tuple[NDArray[np.float32], ...] = ()
    moved: bool = False  # whether the policy is no longer that of the batch's start


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
        self._snapshot = self._objective.has_reference and config.algorithm.reference != "batch"
        self._noise = NoiseFloor(engine, config)
        self._skipped_in_a_row = 0

    def train(self, groups: Sequence[LabeledGroup], policy_version: int) -> dict[str, Any]:
        """Take the optimizer steps of one batch.

        Args:
            groups: ordered by sequence number.
            policy_version: the version the weights are at now: tokens it sampled show the gap to the engine.

        Raises:
            ServiceFailed: too many steps in a row were not finite; names the groups.

        """
        batch = make_batch(groups)
        started = time.monotonic()
        noise_floor = self._noise.measured_once(batch)
        selection = self._objective.select(batch)
        progress = _Progress()
        minibatches = self._before_the_first_step(batch, selection, progress)
        passed = time.monotonic()
        for minibatch in minibatches:
            self._optimizer_step(batch, selection, minibatch, progress)
            self._stop_if_not_finite(groups, batch, minibatch, progress.outcomes[-1])
        return {
            **batch_figures(groups, batch),
            **score_figures(progress.signals, selection, batch.response_tokens_B),
            **value_figures(progress.signals),
            **drift_figures(progress.log_ratios, selection, batch.response_tokens_B),
            "entropy": mean_entropy(progress.at_start),
            "trained_completions": int(selection.trained_B.sum()),
            "loss": finite_mean([signal.loss for signal in progress.signals]),
            **step_figures(progress.outcomes),
            "logprob_gap_max": gap_to_engine(groups, progress.at_start, policy_version),
            "noise_floor": noise_floor,
            "one_pass_share": float(np.mean([minibatch.one_pass for minibatch in minibatches])),
            "seconds": {"logprobs": passed - started, "update": time.monotonic() - passed},
        }

    def _before_the_first_step(self, batch: Batch, selection: "Selection", progress: _Progress) -> list[_Minibatch]:
        """The optimizer steps, with the log-probs that can only be computed now."""
        parts = self._minibatches(batch)
        fresh = not self._snapshot or self._engine.at_reference
        ways = [self._way(batch, selection, rows, fresh=fresh, first=n == 0) for n, rows in enumerate(parts)]
        old = [
            self._engine.logprobs(batch, rows, whole_groups=way.one_pass) if way.passes_at_start else None
            for rows, way in zip(parts, ways, strict=True)
        ]
        progress.start_values_B = tuple(values for known in old if known is not None for values in known.values_B)
        one_pass = [way.one_pass for way in ways]
        reference = old if fresh else self._engine.reference_logprobs(batch, parts, whole_groups=one_pass)
        progress.at_start += [(rows, known) for rows, known in zip(parts, old, strict=True) if known is not None]
        return [_Minibatch(*of_part) for of_part in zip(parts, one_pass, old, reference, strict=True)]

    def _way(self, batch: Batch, selection: "Selection", rows: NDArray[np.int64], *, fresh: bool, first: bool) -> _Way:
        """How an optimizer step will come to its coefficients; `fresh`: the reference is the policy of the start."""
        objective = self._objective
        if first:
            if fresh and not objective.reads_start:
                return _Way(one_pass=False, passes_at_start=False)  # from labels alone
            one_pass = self._one_pass_costs_less(batch, selection, rows, passes_before=int(not fresh))
            return _Way(one_pass, passes_at_start=not one_pass)
        reads_old = objective.reads_old or (fresh and objective.has_reference)
        one_pass = self._one_pass_costs_less(batch, selection, rows, passes_before=reads_old + (not fresh))
        return _Way(one_pass, reads_old)

    def _one_pass_costs_less(
        self, batch: Batch, selection: "Selection", rows: NDArray[np.int64], *, passes_before: int
    ) -> bool:
        settings = self._config.learner
        return self._objective.by_group and one_pass_costs_less(
            batch.tokens_B,
            rows,
            rows[self._objective.teaching(batch, selection)[rows]],
            group_size=batch.group_size,
            ranks=settings.ranks,
            max_tokens=settings.microbatch_tokens,
            recomputed=settings.gradient_checkpointing,
            passes_before=passes_before,
        )

    def _minibatches(self, batch: Batch) -> list[NDArray[np.int64]]:
        """Rows of each optimizer step: whole groups, so that every group's scores come from one policy."""
        per_step = (self._config.learner.minibatch_groups or self._config.run.groups_per_step) * batch.group_size
        rows = np.arange(len(batch))
        return [rows[start : start + per_step] for start in range(0, len(rows), per_step)]

    def _optimizer_step(self, batch: Batch, selection: "Selection", minibatch: _Minibatch, progress: _Progress) -> None:
        rows = minibatch.rows
        take_logprobs = self._logprobs_of_one_pass if minibatch.one_pass else self._logprobs
        logprobs = take_logprobs(batch, selection, minibatch, progress)
        signal = self._objective(logprobs, batch, selection, rows)
        progress.signals.append(signal)
        progress.log_ratios.append(logprobs.log_ratio_b)
        row_n = np.repeat(rows, batch.response_tokens_B[rows])
        contributing = np.unique(row_n[np.any(signal.coefficients, axis=0)])
        finite = all(np.isfinite(of_outputs).all() for of_outputs in signal.coefficients)
        if not finite or (minibatch.one_pass and not len(contributing)):
            self._engine.discard_gradient()
        if not finite:
            progress.outcomes.append(StepOutcome(float("nan"), applied=False, learning_rate=None))
            return
        if len(contributing) and not minibatch.one_pass:
            computed = self._engine.backward(batch, contributing, *_of_batch(batch, rows, signal))
            if minibatch.old is None and not progress.moved:
                progress.at_start.append((contributing, computed))
        outcome = self._engine.step()
        progress.outcomes.append(outcome)
        progress.moved |= bool(len(contributing)) and outcome.applied

    def _logprobs_of_one_pass(
        self, batch: Batch, selection: "Selection", minibatch: _Minibatch, progress: _Progress
    ) -> StepLogprobs:
        """Those of the pass that accumulates the gradient."""
        rows, old, reference = minibatch.rows, minibatch.old, minibatch.reference
        coefficients = GroupCoefficients(self._objective, batch, selection, rows, old, reference)
        policy = self._engine.one_pass(batch, rows, coefficients)
        if old is None and not progress.moved:
            progress.at_start.append((rows, policy))
        return StepLogprobs(policy, old or policy, reference or old or policy)

    def _logprobs(
        self, batch: Batch, selection: "Selection", minibatch: _Minibatch, progress: _Progress
    ) -> StepLogprobs:
        """Those of a pass without gradient, if one is needed."""
        if minibatch.old is None and not progress.outcomes:  # all differences are 0, whatever the log-probs are
            policy = SequenceLogprobs.zeros(batch.response_tokens_B[minibatch.rows])
        elif minibatch.old is not None and not progress.moved:
            policy = minibatch.old
        else:
            policy = self._engine.logprobs(batch, minibatch.rows)
        old = minibatch.old or policy
        return StepLogprobs(policy, old, minibatch.reference or old, progress.start_values_B)

    def _stop_if_not_finite(
        self, groups: Sequence[LabeledGroup], batch: Batch, minibatch: _Minibatch, outcome: StepOutcome
    ) -> None:
        self._skipped_in_a_row = 0 if outcome.applied else self._skipped_in_a_row + 1
        limit = self._config.learner.max_nonfinite_steps
        if self._skipped_in_a_row >= limit:
            ids = [groups[n].group.prompt.sequence for n in np.unique(minibatch.rows // batch.group_size)]
            raise ServiceFailed(
                f"loss or gradient must be finite, but {self._skipped_in_a_row} optimizer steps in a row were not "
                f"(limit learner.max_nonfinite_steps={limit}); last groups: {ids}; lower learner.learning_rate or look "
                "at these groups"
            )


def _of_batch(batch: Batch, rows: NDArray[np.int64], signal: Signal) -> list[NDArray[np.float64]]:
    """The step's coefficients among those of all response tokens of the batch."""
    whole = [np.zeros(int(batch.response_tokens_B.sum())) for _ in signal.coefficients]
    for coefficient_N, coefficient_n in zip(whole, signal.coefficients, strict=True):
        coefficient_N[batch.places(rows)] = coefficient_n
    return whole
