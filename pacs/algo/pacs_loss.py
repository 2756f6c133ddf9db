"""The PACS loss: reinforcement learning with verifiable rewards as binary classification.

Shapes: P prompt groups, G completions of a group, B = P·G (groups contiguous).
Source: "Implicit Actor Critic Coupling via a Supervised Learning Framework for RLVR",
https://arxiv.org/abs/2509.02522, equations 5 and 6, and its published code.

The gradient couples the samples of a group through G numbers only. So a learner may compute all log-probabilities
of a step without gradient, get c_B = `coefficients(...)`, and back-propagate Σ_k c_k · logp_k in any micro-batches.
"""

from typing import Literal, NamedTuple

import torch  # noqa: TID253 - tensors are what this package computes on
import torch.nn.functional as F  # noqa: TID253
from torch import Tensor  # noqa: TID253

from pacs.algo.class_weights import ClassWeight, class_weights
from pacs.algo.scores import Score, log_ratio, mean_logprob, scorable, score_groups

__all__ = ["Gradient", "PacsLoss", "coefficients", "pacs_loss"]

Gradient = Literal["pathwise", "full"]


class PacsLoss(NamedTuple):
    """The loss and what it was made of.

    Attributes:
        loss: scalar, Σ weight · bce / count.
        score_PG: ψ, the logits; 0 for samples that do not count.
        weight_PG: class weights, float32; 0 for samples that do not count.
        log_ratio_B: r, nats.
        bce_PG: binary cross entropy of each sample, nats, before weighting.

    """

    loss: Tensor
    score_PG: Tensor
    weight_PG: Tensor
    log_ratio_B: Tensor
    bce_PG: Tensor


def _check(logp_B: Tensor, others: dict[str, Tensor | None], *, group_size: int, count: int) -> None:
    for name, other_B in others.items():
        if other_B is not None and other_B.shape != logp_B.shape:
            shapes = f"{tuple(other_B.shape)}, {tuple(logp_B.shape)}"
            raise ValueError(f"{name} must have the shape of logp_B, got {shapes}")
    if logp_B.dim() != 1 or group_size < 1 or logp_B.shape[0] % group_size:
        raise ValueError(
            f"logp_B must hold whole groups in one dimension, got shape {tuple(logp_B.shape)} "
            f"and group_size={group_size}; pad short groups with invalid samples"
        )
    if count < 1:
        raise ValueError(f"count must be the positive number of completions in the optimizer step, got count={count}")


def pacs_loss(
    logp_B: Tensor,
    ref_logp_B: Tensor | None,
    label_B: Tensor,
    valid_B: Tensor,
    *,
    group_size: int,
    beta: float = 1.0,
    score: Score = "rloo",
    class_weight: ClassWeight = "balanced",
    count: int,
    length_B: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> PacsLoss:
    """Compute Σ_i w_i · BCEwithLogits(ψ_i, R_i) / count, PACS equation 5.

    Differentiable with respect to logp_B through ψ: the published code's gradient for fixed samples ("pathwise").

    Args:
        logp_B: log-probability of each completion under the policy, nats, summed over response tokens.
        ref_logp_B: the same under the reference, or None for the log-ratio β · logp / length (`mean_logprob`).
        label_B: 1 for correct, 0 for wrong; ignored where not valid.
        valid_B: bool, false where the verifier could not judge; such samples take no part in anything.
        group_size: G.
        beta: β, scale of the log-ratio.
        score: `rloo`, `grpo`, `dr_grpo` or `naive`.
        class_weight: `balanced`, `none`, `positive_only` or `negative_only`.
        count: completions in the whole optimizer step, over all micro-batches and ranks.
        length_B: response tokens; needed where ref_logp_B is None.
        label_smoothing: ε; the classifier's targets are R·(1 − ε) + ε/2, so that no score is driven to infinity.
            Source: "Rethinking the Inception Architecture for Computer Vision", https://arxiv.org/abs/1512.00567.

    Returns:
        The loss, a scalar, with its parts.

    Raises:
        ValueError: shapes that differ, broken groups, an unknown name, neither reference nor lengths, or an ε outside
            [0, 1).

    """
    if not 0 <= label_smoothing < 1:
        raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}; at 1 labels would say nothing")
    tensors = {"ref_logp_B": ref_logp_B, "label_B": label_B, "valid_B": valid_B, "length_B": length_B}
    _check(logp_B, tensors, group_size=group_size, count=count)
    logp_B = logp_B.to(torch.promote_types(logp_B.dtype, torch.float32))
    log_ratio_B = _log_ratio(logp_B, ref_logp_B, length_B, beta=beta)

    valid_PG = scorable(valid_B.view(-1, group_size), score=score)
    score_PG = score_groups(log_ratio_B.view(-1, group_size), valid_PG, score=score)
    label_PG = (label_B.view(-1, group_size) == 1) & valid_PG
    weight_PG = class_weights(label_PG, valid_PG, class_weight=class_weight)
    target_PG = label_PG.to(score_PG.dtype) * (1 - label_smoothing) + label_smoothing / 2
    bce_PG = F.binary_cross_entropy_with_logits(score_PG, target_PG, reduction="none")
    return PacsLoss((weight_PG * bce_PG).sum() / count, score_PG, weight_PG, log_ratio_B, bce_PG)


def _log_ratio(logp_B: Tensor, ref_logp_B: Tensor | None, length_B: Tensor | None, *, beta: float) -> Tensor:
    if ref_logp_B is not None:
        return log_ratio(logp_B, ref_logp_B, beta=beta)
    if length_B is None:
        raise ValueError("a log-ratio needs ref_logp_B, or length_B for mean_logprob, got neither; pass one of them")
    return mean_logprob(logp_B, length_B, beta=beta)


def coefficients(
    logp_B: Tensor,
    ref_logp_B: Tensor | None,
    label_B: Tensor,
    valid_B: Tensor,
    *,
    group_size: int,
    beta: float = 1.0,
    score: Score = "rloo",
    class_weight: ClassWeight = "balanced",
    count: int,
    length_B: Tensor | None = None,
    label_smoothing: float = 0.0,
    gradient: Gradient = "pathwise",
) -> Tensor:
    """Compute c_k = ∂L/∂logp_k; descending Σ_k c_k · logp_k descends the loss.

    `pathwise` differentiates ψ for fixed samples. `full` adds the score-function term w_k · BCE_k / count of PACS
    equation 6; it lowers the probability of correct samples whose ψ is low, where `pathwise` raises it.

    Args:
        logp_B, ref_logp_B, label_B, valid_B, group_size, beta, score, class_weight, count, length_B, label_smoothing:
            as for `pacs_loss`; logp_B needs no gradient.
        gradient: `pathwise` or `full`.

    Returns:
        coefficient_B: detached; 0 for samples that do not count.

    Raises:
        ValueError: as `pacs_loss`, or an unknown gradient.

    """
    if gradient not in ("pathwise", "full"):
        raise ValueError(f"gradient must be pathwise or full, got {gradient!r}")
    with torch.enable_grad():
        leaf_B = logp_B.detach().to(torch.promote_types(logp_B.dtype, torch.float32)).requires_grad_()
        out = pacs_loss(
            leaf_B,
            ref_logp_B,
            label_B,
            valid_B,
            group_size=group_size,
            beta=beta,
            score=score,
            class_weight=class_weight,
            count=count,
            length_B=length_B,
            label_smoothing=label_smoothing,
        )
        (pathwise_B,) = torch.autograd.grad(out.loss, leaf_B)
    if gradient == "pathwise":
        return pathwise_B
    return pathwise_B + (out.weight_PG * out.bce_PG).detach().flatten() / count
