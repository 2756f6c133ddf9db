"""Log-ratios of sampled completions, and the scores made of them inside a prompt group.

Shapes: P prompt groups, G completions of a group, B = P·G (groups contiguous), T response tokens, padded.
Source: "Implicit Actor Critic Coupling via a Supervised Learning Framework for RLVR" (PACS),
https://arxiv.org/abs/2509.02522, section 3 and its published code.

Samples that are not valid never enter a mean, a deviation or a count, and score 0.
"""

from collections.abc import Callable
from typing import Literal

import torch  # noqa: TID253 - tensors are what this package computes on
from torch import Tensor  # noqa: TID253

__all__ = [
    "Score",
    "dr_grpo",
    "grpo",
    "log_ratio",
    "masked_sum",
    "mean_logprob",
    "naive",
    "rloo",
    "scorable",
    "score_groups",
]

Score = Literal["rloo", "grpo", "dr_grpo", "naive"]

DEVIATION_FLOOR = 1e-6
"""Added to the group's standard deviation, as in the published code."""


def masked_sum(logp_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Sum token log-probabilities over the response, in float32 or better.

    Args:
        logp_BT: log-probability of each token, nats; what lies outside the mask may be anything, NaN included.
        mask_BT: bool, true on response tokens.

    Returns:
        logp_B: log-probability of each completion, nats.

    Raises:
        ValueError: the two shapes differ.

    """
    if logp_BT.shape != mask_BT.shape:
        raise ValueError(f"logp_BT and mask_BT must have one shape, got {tuple(logp_BT.shape)}, {tuple(mask_BT.shape)}")
    precise_BT = logp_BT.to(torch.promote_types(logp_BT.dtype, torch.float32))
    return precise_BT.masked_fill(~mask_BT.bool(), 0.0).sum(-1)


def log_ratio(logp_B: Tensor, ref_logp_B: Tensor, *, beta: float) -> Tensor:
    """Compute r = β (log π_θ(o) − log π_ref(o)), PACS section 3.

    Args:
        logp_B: log-probability of each completion under the policy, nats.
        ref_logp_B: the same under the reference.
        beta: β, scale of the log-ratio.

    Returns:
        log_ratio_B: nats.

    """
    return beta * (logp_B - ref_logp_B)


def mean_logprob(logp_B: Tensor, length_B: Tensor, *, beta: float) -> Tensor:
    """Compute β · log π_θ(o) / length: the published code's log-ratio without a reference.

    Args:
        logp_B: log-probability of each completion under the policy, nats.
        length_B: response tokens; an empty response counts as one token.
        beta: β, scale.

    Returns:
        log_ratio_B: nats per token.

    """
    return beta * logp_B / length_B.clamp(min=1)


def _valid_count(valid_PG: Tensor) -> Tensor:
    return valid_PG.sum(-1, keepdim=True)


def scorable(valid_PG: Tensor, *, score: Score) -> Tensor:
    """Tell which samples have a score: the valid ones and, where there is a baseline, those with a valid peer.

    Args:
        valid_PG: bool, false where the label is invalid.
        score: name of the score; only `naive` has no baseline.

    Returns:
        scorable_PG: bool.

    """
    valid_PG = valid_PG.bool()
    return valid_PG if score == "naive" else valid_PG & (_valid_count(valid_PG) >= 2)


def rloo(log_ratio_PG: Tensor, valid_PG: Tensor) -> Tensor:
    """Score by the leave-one-out baseline: ψ_i = r_i − mean_{j≠i} r_j.

    Args:
        log_ratio_PG: r, finite where valid.
        valid_PG: bool.

    Returns:
        score_PG: ψ; 0 where not valid and in groups with fewer than two valid samples.

    """
    r_PG = log_ratio_PG.masked_fill(~valid_PG, 0.0)
    others_PG = (r_PG.sum(-1, keepdim=True) - r_PG) / (_valid_count(valid_PG) - 1).clamp(min=1)
    return (r_PG - others_PG).masked_fill(~scorable(valid_PG, score="rloo"), 0.0)


def dr_grpo(log_ratio_PG: Tensor, valid_PG: Tensor) -> Tensor:
    """Score by the group's mean: ψ_i = r_i − mean_j r_j.

    Args:
        log_ratio_PG: r, finite where valid.
        valid_PG: bool.

    Returns:
        score_PG: ψ; 0 where not valid and in groups with fewer than two valid samples.

    """
    r_PG = log_ratio_PG.masked_fill(~valid_PG, 0.0)
    mean_P1 = r_PG.sum(-1, keepdim=True) / _valid_count(valid_PG).clamp(min=1)
    return (r_PG - mean_P1).masked_fill(~scorable(valid_PG, score="dr_grpo"), 0.0)


def grpo(log_ratio_PG: Tensor, valid_PG: Tensor) -> Tensor:
    """Score by the group's mean and unbiased standard deviation: ψ_i = (r_i − mean_j r_j) / (std_j r_j + 1e-6).

    Where all log-ratios of a group are equal, as right after a reset, the gradient is 1e6 times that of `dr_grpo`.

    Args:
        log_ratio_PG: r, finite where valid.
        valid_PG: bool.

    Returns:
        score_PG: ψ; 0 where not valid and in groups with fewer than two valid samples.

    """
    centred_PG = dr_grpo(log_ratio_PG, valid_PG)
    variance_P1 = centred_PG.square().sum(-1, keepdim=True) / (_valid_count(valid_PG) - 1).clamp(min=1)
    spread_P1 = variance_P1 > 0
    # The root has no derivative at 0: keep such groups away from it, or their gradient is NaN.
    std_P1 = variance_P1.masked_fill(~spread_P1, 1.0).sqrt().masked_fill(~spread_P1, 0.0)
    return centred_PG / (std_P1 + DEVIATION_FLOOR)


def naive(log_ratio_PG: Tensor, valid_PG: Tensor) -> Tensor:
    """Score by the log-ratio alone: ψ_i = r_i.

    Args:
        log_ratio_PG: r, finite where valid.
        valid_PG: bool.

    Returns:
        score_PG: ψ; 0 where not valid.

    """
    return log_ratio_PG.masked_fill(~valid_PG, 0.0)


_SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rloo": rloo,
    "grpo": grpo,
    "dr_grpo": dr_grpo,
    "naive": naive,
}


def score_groups(log_ratio_PG: Tensor, valid_PG: Tensor, *, score: Score) -> Tensor:
    """Compute the score called `score`.

    Args:
        log_ratio_PG: r, nats; may be NaN where not valid.
        valid_PG: bool, false where the label is invalid.
        score: `rloo`, `grpo`, `dr_grpo` or `naive`.

    Returns:
        score_PG: ψ, the logit of the classifier; 0 where there is none.

    Raises:
        ValueError: an unknown score, shapes that differ, or a group of one with a score that has a baseline.

    """
    if score not in _SCORES:
        raise ValueError(f"score must be one of {', '.join(_SCORES)}, got {score!r}")
    if log_ratio_PG.shape != valid_PG.shape:
        shapes = f"{tuple(log_ratio_PG.shape)}, {tuple(valid_PG.shape)}"
        raise ValueError(f"log_ratio_PG and valid_PG must have one shape, got {shapes}")
    if score != "naive" and log_ratio_PG.shape[-1] < 2:
        raise ValueError(
            f"group_size must be at least 2 for the {score} score, got group_size={log_ratio_PG.shape[-1]}; "
            "sample more completions a prompt or use score=naive"
        )
    return _SCORES[score](log_ratio_PG, valid_PG.bool())
