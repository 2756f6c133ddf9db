"""What a batch says of itself: the figures of a step report. Pure numpy, but for the health of the classifier."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pacs.wire.groups import LabeledGroup
from services.learner.batches import Batch

if TYPE_CHECKING:
    from pacs.algo import Selection

__all__ = ["batch_figures", "gap_to_engine", "score_figures"]


def batch_figures(groups: Sequence[LabeledGroup], batch: Batch, policy_version: int) -> dict[str, Any]:
    """Labels, lengths and staleness of a batch."""
    label_PG = batch.label_B.reshape(-1, batch.group_size)
    valid_PG = batch.valid_B.reshape(-1, batch.group_size)
    correct_P, judged_P = (label_PG * valid_PG).sum(1), valid_PG.sum(1)
    staleness = np.array([policy_version - g.group.oldest_version for g in groups])
    judged = int(valid_PG.sum())
    return {
        "prompt_ids": [g.group.prompt.prompt_id for g in groups],
        "accuracy": float(correct_P.sum() / judged) if judged else None,
        "tokens": int(batch.response_tokens_B.sum()),
        "response_tokens_mean": float(batch.response_tokens_B.mean()),
        "response_tokens_max": int(batch.response_tokens_B.max()),
        "truncated_share": float(batch.truncated_B.mean()),
        "staleness_mean": float(staleness.mean()),
        "staleness_max": int(staleness.max()),
        "uniform_share": float(np.mean((correct_P == 0) | (correct_P == judged_P))),
        "invalid_share": float(1.0 - valid_PG.mean()),
        "groups": {
            "all_pass": int(np.sum((correct_P == judged_P) & (judged_P > 0))),
            "all_fail": int(np.sum((correct_P == 0) & (judged_P > 0))),
            "mixed": int(np.sum((correct_P > 0) & (correct_P < judged_P))),
        },
    }


def score_figures(
    scores: Sequence[NDArray[np.float64]], selection: "Selection", length_B: NDArray[np.int64]
) -> dict[str, Any]:
    """The scores as a classifier's: by label, calibration, Brier, AUC, saturation, slope against length.

    Args:
        scores: ψ of the sequences of each optimizer step, in the order of the batch; empty if there is no classifier.
        selection: which of the batch's sequences count, and under which label.
        length_B: response tokens.

    """
    import torch

    from pacs.algo import area_under_curve, brier, calibration_error, length_slope, saturated_share

    score_B = np.concatenate(scores) if scores else np.full(len(length_B), np.nan)
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
        "calibration_error": _number(calibration_error(score, label)),
        "brier": _number(brier(score, label)),
        "auc": _number(area_under_curve(score, label)),
        "saturated_share": _number(saturated_share(score)),
        "length_slope": _number(length_slope(score, length)),
    }


def gap_to_engine(
    groups: Sequence[LabeledGroup], learner_tokens_B: Sequence[NDArray[np.float32]], policy_version: int
) -> float | None:
    """Largest |engine − learner| log-prob over tokens sampled by the very weights the learner holds, nats.

    None where every token came from older weights: then the two are meant to differ.
    """
    gaps = []
    completions = [c for g in groups for c in g.group.completions]
    for completion, learner_tokens in zip(completions, learner_tokens_B, strict=True):
        for span in completion.versions:
            if span.policy_version == policy_version and span.end > span.start:
                engine, learner = completion.logprobs[span.start : span.end], learner_tokens[span.start : span.end]
                gaps.append(float(np.max(np.abs(engine - learner))))
    return max(gaps, default=None)


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
