"""What a batch says of itself: the figures of a step report. Pure numpy, but for the health of the classifier."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pacs.wire.groups import LabeledGroup
from services.learner.batches import Batch
from services.learner.engine import SequenceLogprobs, StepOutcome
from services.learner.step_signal import Signal

if TYPE_CHECKING:
    from pacs.algo import Selection

__all__ = [
    "AtStart",
    "batch_figures",
    "drift_figures",
    "finite_mean",
    "gap_to_engine",
    "mean_entropy",
    "score_figures",
    "step_figures",
    "value_figures",
]

AtStart = list[tuple[NDArray[np.int64], SequenceLogprobs]]
"""Rows of the batch and their log-probs under the policy it began with; rows that no pass needed are missing."""


def batch_figures(groups: Sequence[LabeledGroup], batch: Batch) -> dict[str, Any]:
    """Labels and lengths of a batch."""
    import torch

    from pacs.algo import uniform_share

    label_PG = batch.label_B.reshape(-1, batch.group_size)
    valid_PG = batch.valid_B.reshape(-1, batch.group_size)
    correct_P, judged_P = (label_PG * valid_PG).sum(1), valid_PG.sum(1)
    judged = int(valid_PG.sum())
    return {
        "prompt_ids": [g.group.prompt.prompt_id for g in groups],
        "accuracy": float(correct_P.sum() / judged) if judged else None,
        "tokens": int(batch.response_tokens_B.sum()),
        "response_tokens_mean": float(batch.response_tokens_B.mean()),
        "response_tokens_max": int(batch.response_tokens_B.max()),
        "truncated_share": float(batch.truncated_B.mean()),
        "uniform_share": _number(uniform_share(torch.from_numpy(label_PG), torch.from_numpy(valid_PG))),
        "invalid_share": float(1.0 - valid_PG.mean()),
        "groups": {
            "all_pass": int(np.sum((correct_P == judged_P) & (judged_P > 0))),
            "all_fail": int(np.sum((correct_P == 0) & (judged_P > 0))),
            "mixed": int(np.sum((correct_P > 0) & (correct_P < judged_P))),
        },
    }


def step_figures(outcomes: Sequence[StepOutcome]) -> dict[str, Any]:
    """Of a batch's optimizer steps: the mean norm of those that were applied, the last rate, and what was skipped."""
    return {
        "grad_norm": finite_mean([outcome.grad_norm for outcome in outcomes]),
        "learning_rate": next((o.learning_rate for o in reversed(outcomes) if o.learning_rate is not None), None),
        "skipped_steps": sum(not outcome.applied for outcome in outcomes),
        "skipped": not any(outcome.applied for outcome in outcomes),
    }


def score_figures(signals: Sequence[Signal], selection: "Selection", length_B: NDArray[np.int64]) -> dict[str, Any]:
    """The scores as a classifier's: by label, calibration, Brier, AUC, saturation, slope against length; weights.

    Args:
        signals: of each optimizer step, in the order of the batch; without scores if there is no classifier.
        selection: which of the batch's sequences count, and under which label.
        length_B: response tokens.

    """
    import torch

    from pacs.algo import area_under_curve, brier, calibration_error, length_slope, saturated_share

    score_B = _joined([signal.score_b for signal in signals], len(length_B))
    weight_B = _joined([signal.weight_b for signal in signals], len(length_B))
    label_B = selection.label_B.numpy()
    scored_B = selection.trained_B.numpy() & np.isfinite(score_B)  # a score that is not: its step was skipped
    if not scored_B.any():
        return {}
    correct_B, wrong_B = (label_B == 1) & scored_B, (label_B == 0) & scored_B
    score, label = torch.from_numpy(score_B[scored_B]), torch.from_numpy(label_B[scored_B])
    length = torch.from_numpy(length_B[scored_B])
    return {
        "score_correct_mean": float(score_B[correct_B].mean()) if correct_B.any() else None,
        "score_wrong_mean": float(score_B[wrong_B].mean()) if wrong_B.any() else None,
        "score_abs_max": float(np.abs(score_B[scored_B]).max()),
        "class_weight_min": float(weight_B[scored_B].min()),
        "class_weight_max": float(weight_B[scored_B].max()),
        "calibration_error": _number(calibration_error(score, label)),
        "brier": _number(brier(score, label)),
        "auc": _number(area_under_curve(score, label)),
        "saturated_share": _number(saturated_share(score)),
        "length_slope": _number(length_slope(score, length)),
    }


def value_figures(signals: Sequence[Signal]) -> dict[str, Any]:
    """Of the value function: its mean loss, and what it explained of the returns before it learnt from them."""
    values = [signal.value for signal in signals if signal.value is not None]
    if not values:
        return {}
    return {
        "value_loss": finite_mean([value.loss for value in values]),
        "explained_variance": values[0].explained_variance,
    }


def drift_figures(
    log_ratios: Sequence[NDArray[np.float64]], selection: "Selection", length_B: NDArray[np.int64]
) -> dict[str, Any]:
    """How far the policy was from the reference, mean |log π_θ − log π_ref| per token, nats."""
    import torch

    from pacs.algo import drift_per_token

    log_ratio_B = np.concatenate(log_ratios)
    counted_B = selection.trained_B.numpy() & np.isfinite(log_ratio_B)
    drift = drift_per_token(torch.from_numpy(log_ratio_B[counted_B]), torch.from_numpy(length_B[counted_B]))
    return {"drift": _number(drift)}


def mean_entropy(at_start: AtStart) -> float | None:
    """Of the predicted distributions, nats per token, over all rows that were computed; None where none was."""
    tokens = sum(len(logprobs.tokens_N) for _, logprobs in at_start)
    total = sum(logprobs.entropy * len(logprobs.tokens_N) for _, logprobs in at_start)
    return total / tokens if tokens and np.isfinite(total) else None


def gap_to_engine(groups: Sequence[LabeledGroup], at_start: AtStart, policy_version: int) -> float | None:
    """Largest |engine − learner| log-prob over tokens sampled by the very weights the learner holds, nats.

    None where every token came from older weights: then the two are meant to differ.
    """
    gaps = []
    completions = [c for g in groups for c in g.group.completions]
    for rows, logprobs in at_start:
        for row, learner_tokens in zip(rows.tolist(), logprobs.tokens_B, strict=True):
            completion = completions[row]
            for span in completion.versions:
                if span.policy_version == policy_version and span.end > span.start:
                    engine, learner = completion.logprobs[span.start : span.end], learner_tokens[span.start : span.end]
                    gaps.append(float(np.max(np.abs(engine - learner))))
    return max((gap for gap in gaps if np.isfinite(gap)), default=None)


def finite_mean(values: Sequence[float]) -> float | None:
    """Of those that are finite; None where none is."""
    finite = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite)) if finite else None


def _joined(parts: Sequence[NDArray[Any] | None], length: int) -> NDArray[Any]:
    """The steps' arrays end to end; NaN where there are none."""
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if known else np.full(length, np.nan)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
