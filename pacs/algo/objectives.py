"""What every objective has in common: a pure function of the policy's log-probabilities, and its derivative.

Shapes: B sequences of an optimizer step, N actions of any share of it.
An *action* is what has one log-probability, one ratio and one clip: a response token or, for an objective at the
level of sequences, a whole response. `row_N` says which sequence an action belongs to.

An objective that is not PACS is one function of the type `PolicyLoss` (`pacs/algo/policy_gradient.py` has four) and one
line in `BASELINES` (`pacs/algo/baselines.py`) with the advantages it wants. Its sum runs over the actions it is given
and is divided by the counts of the whole step, so that the shares of micro-batches or ranks add up to the loss.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch  # noqa: TID253 - tensors are what this package computes on
from torch import Tensor  # noqa: TID253

__all__ = ["PolicyLoss", "Step", "differentiate", "importance_weights"]


@dataclass(frozen=True)
class Step:
    """What is constant in one optimizer step, whatever share of its actions is looked at.

    Args:
        advantage_B: A, from labels alone; 0 for sequences that take no part.
        length_B: response tokens.
        completions: sequences that take part, in the whole step.
        tokens: response tokens of those.
        max_response_tokens: the limit at which sampling cuts a response.
        clip_low: the ratio is clipped below 1 − clip_low; 0: not at all.
        clip_high: the ratio is clipped above 1 + clip_high; 0: not at all.

    Raises:
        ValueError: a count that is not positive, a negative clip, or shapes that differ.

    """

    advantage_B: Tensor
    length_B: Tensor
    completions: int
    tokens: int
    max_response_tokens: int
    clip_low: float = 0.2
    clip_high: float = 0.2

    def __post_init__(self) -> None:
        if min(self.completions, self.tokens, self.max_response_tokens) < 1:
            raise ValueError(
                "completions, tokens and max_response_tokens must be positive, got "
                f"{self.completions}, {self.tokens}, {self.max_response_tokens}; skip a step without completions"
            )
        if min(self.clip_low, self.clip_high) < 0:
            raise ValueError(f"clip_low and clip_high must not be negative, got {self.clip_low}, {self.clip_high}")
        if self.advantage_B.shape != self.length_B.shape:
            shapes = f"{tuple(self.advantage_B.shape)}, {tuple(self.length_B.shape)}"
            raise ValueError(f"advantage_B and length_B must have one shape, got {shapes}")


PolicyLoss = Callable[[Tensor, Tensor, Tensor, Step], Tensor]
"""(logp_N, old_logp_N, row_N, step) → the share's part of the loss, a scalar; `old` is the policy at the batch's start.

logp_N and old_logp_N may be anything, NaN included, where the advantage is 0."""


def differentiate(loss: Callable[[Tensor], Tensor], logp_N: Tensor) -> tuple[Tensor, Tensor]:
    """Evaluate a loss and its derivative; descending Σ coefficient · logp descends the loss.

    Args:
        loss: a pure function of logp_N.
        logp_N: needs no gradient.

    Returns:
        The loss, a scalar, and coefficient_N = ∂loss/∂logp_N, both detached.

    """
    with torch.enable_grad():
        leaf_N = logp_N.detach().requires_grad_()
        value = loss(leaf_N)
        (coefficient_N,) = torch.autograd.grad(value, leaf_N)
    return value.detach(), coefficient_N


def importance_weights(old_logp_N: Tensor, engine_logp_N: Tensor, *, cap: float) -> Tensor:
    """Compute min(π_old / π_engine, cap) of each action: a factor on its coefficient, without gradient.

    Corrects for samples drawn by an older policy, or by an engine whose log-probabilities differ from the learner's.
    Source: truncated importance sampling as in "IMPALA: Scalable Distributed Deep-RL with Importance Weighted
    Actor-Learner Architectures", https://arxiv.org/abs/1802.01561; between engine and learner: "Your Efficient RL
    Framework Secretly Brings You Off-Policy RL Training", https://fengyao.notion.site/off-policy-rl

    Args:
        old_logp_N: log-probability under the learner's policy at the start of the batch, nats.
        engine_logp_N: the same as the engine that sampled the action gave it.
        cap: largest weight.

    Returns:
        weight_N: in [0, cap].

    Raises:
        ValueError: shapes that differ, or a cap that is not positive.

    """
    if old_logp_N.shape != engine_logp_N.shape or cap <= 0:
        shapes = f"{tuple(old_logp_N.shape)}, {tuple(engine_logp_N.shape)}"
        raise ValueError(
            f"old_logp_N and engine_logp_N must have one shape and cap must be positive, got {shapes}, cap={cap}"
        )
    return (old_logp_N - engine_logp_N).detach().exp().clamp(max=cap)
