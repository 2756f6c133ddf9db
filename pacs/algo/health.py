"""How well the policy classifies its own samples: PACS is a classifier and can be graded as one.

Shapes: P prompt groups, G completions of a group, N samples (valid ones only; the caller selects).
Everything is without gradient and in float64. A figure that does not exist for the samples given is None, never NaN.
"""

import torch  # noqa: TID253 - tensors are what this package computes on
from torch import Tensor  # noqa: TID253

__all__ = [
    "area_under_curve",
    "brier",
    "calibration_error",
    "drift_per_token",
    "length_slope",
    "saturated_share",
    "uniform_groups",
    "uniform_share",
]

SATURATED_SLOPE = 1e-3
"""A score with σ'(ψ) below this hardly moves the policy any more (|ψ| above 6.9)."""


def _pair(first_N: Tensor, second_N: Tensor) -> tuple[Tensor, Tensor]:
    if first_N.shape != second_N.shape or first_N.dim() != 1:
        shapes = f"{tuple(first_N.shape)}, {tuple(second_N.shape)}"
        raise ValueError(f"both tensors must be one-dimensional and of one length, got shapes {shapes}")
    return first_N.detach().double(), second_N.detach().double()


def calibration_error(score_N: Tensor, label_N: Tensor, *, bins: int = 10) -> float | None:
    """Compute the expected calibration error: Σ_bins share · |mean σ(ψ) − mean label|.

    Source: "Obtaining Well Calibrated Probabilities Using Bayesian Binning", Naeini et al. 2015, equal-width bins.

    Args:
        score_N: ψ.
        label_N: 0 or 1.
        bins: number of bins of equal width over [0, 1].

    Returns:
        A number in [0, 1]; None without samples.

    Raises:
        ValueError: shapes that differ.

    """
    score_N, label_N = _pair(score_N, label_N)
    if not score_N.numel():
        return None
    p_N = score_N.sigmoid()
    bin_N = (p_N * bins).long().clamp(max=bins - 1)
    # Share times difference of means is the difference of sums over all samples.
    gap_bins = p_N.new_zeros(bins).index_add_(0, bin_N, p_N - label_N)
    return gap_bins.abs().sum().item() / score_N.numel()


def brier(score_N: Tensor, label_N: Tensor) -> float | None:
    """Compute the Brier score, mean (σ(ψ) − label)²; None without samples.

    Raises:
        ValueError: shapes that differ.

    """
    score_N, label_N = _pair(score_N, label_N)
    return (score_N.sigmoid() - label_N).square().mean().item() if score_N.numel() else None


def area_under_curve(score_N: Tensor, label_N: Tensor) -> float | None:
    """Compute the area under the ROC curve: the chance that a correct sample scores above a wrong one, ties half.

    Source: the Mann-Whitney statistic with mean ranks for ties.

    Args:
        score_N: ψ.
        label_N: 0 or 1.

    Returns:
        A number in [0, 1]; None where one label is missing.

    Raises:
        ValueError: shapes that differ.

    """
    score_N, label_N = _pair(score_N, label_N)
    positives = int(label_N.sum().item())
    negatives = label_N.numel() - positives
    if not positives or not negatives:
        return None
    _, value_N, ties = torch.unique(score_N, return_inverse=True, return_counts=True)
    rank_N = (ties.cumsum(0) - (ties - 1) / 2)[value_N]
    rank_sum = float((rank_N * label_N).sum().item())
    return (rank_sum - positives * (positives + 1) / 2) / (positives * negatives)


def saturated_share(score_N: Tensor) -> float | None:
    """Compute the share of scores with σ'(ψ) below 1e-3; None without samples."""
    p_N = score_N.detach().double().sigmoid()
    return (p_N * (1 - p_N) < SATURATED_SLOPE).double().mean().item() if p_N.numel() else None


def length_slope(score_N: Tensor, length_N: Tensor) -> float | None:
    """Fit ψ = a + slope · length by least squares: a common error per token shows as a reward for length.

    Args:
        score_N: ψ.
        length_N: response tokens.

    Returns:
        The slope, per token; None where all lengths are equal.

    Raises:
        ValueError: shapes that differ.

    """
    score_N, length_N = _pair(score_N, length_N)
    if length_N.numel() < 2:
        return None
    centred_N = length_N - length_N.mean()
    variation = centred_N.square().sum().item()
    return (centred_N * score_N).sum().item() / variation if variation > 0 else None


def drift_per_token(log_ratio_N: Tensor, length_N: Tensor) -> float | None:
    """Compute mean |r| / length, nats per token: how far the policy is from its reference; None without samples.

    Raises:
        ValueError: shapes that differ.

    """
    log_ratio_N, length_N = _pair(log_ratio_N, length_N)
    return (log_ratio_N.abs() / length_N.clamp(min=1)).mean().item() if length_N.numel() else None


def uniform_groups(label_PG: Tensor, valid_PG: Tensor) -> Tensor:
    """Tell which groups have valid samples, all with one label; shape [P], bool."""
    valid_PG = valid_PG.bool()
    valid_P = valid_PG.sum(-1)
    positive_P = ((label_PG == 1) & valid_PG).sum(-1)
    return (valid_P > 0) & ((positive_P == 0) | (positive_P == valid_P))


def uniform_share(label_PG: Tensor, valid_PG: Tensor) -> float | None:
    """Compute the share of groups with one label among those with any valid sample; None without such groups."""
    judged = int(valid_PG.bool().any(-1).sum().item())
    return uniform_groups(label_PG, valid_PG).sum().item() / judged if judged else None
