"""Policy-gradient losses, to compare PACS with: each a pure function of the type `PolicyLoss`.

Shapes: B sequences of an optimizer step, N actions of any share of it (see `pacs/algo/objectives.py`).
None has a penalty for leaving a reference policy. With one optimizer step a batch every ratio is 1: nothing is
clipped, and each loss has the gradient of its textbook form without ratios.
"""

import math

import torch  # noqa: TID253 - tensors are what this package computes on
from torch import Tensor  # noqa: TID253

from pacs.algo.objectives import Step

__all__ = ["clipped_surrogate", "dr_grpo_loss", "grpo_loss", "reinforce_loss", "rloo_loss"]


def clipped_surrogate(
    logp_N: Tensor, old_logp_N: Tensor, advantage_N: Tensor, *, clip_low: float, clip_high: float
) -> Tensor:
    """Compute −min(ρ·A, clip(ρ, 1 − clip_low, 1 + clip_high)·A) of each action, with ρ = exp(logp − old_logp).

    Source: "Proximal Policy Optimization Algorithms", https://arxiv.org/abs/1707.06347, equation 7; two clips as in
    "DAPO: An Open-Source LLM Reinforcement Learning System at Scale", https://arxiv.org/abs/2503.14476.

    Args:
        logp_N: log-probability under the policy, nats.
        old_logp_N: the same under the policy at the batch's start.
        advantage_N: A; where it is 0 the log-probabilities may be anything, NaN included.
        clip_low: 0: no bound below.
        clip_high: 0: no bound above.

    Returns:
        surrogate_N: to be minimised.

    Raises:
        ValueError: shapes that differ.

    """
    if not logp_N.shape == old_logp_N.shape == advantage_N.shape:
        shapes = f"{tuple(logp_N.shape)}, {tuple(old_logp_N.shape)}, {tuple(advantage_N.shape)}"
        raise ValueError(f"logp_N, old_logp_N and advantage_N must have one shape, got {shapes}")
    ratio_N = (logp_N - old_logp_N).masked_fill(advantage_N == 0, 0.0).exp()
    low = 1 - clip_low if clip_low else 0.0
    high = 1 + clip_high if clip_high else math.inf
    return -torch.minimum(ratio_N * advantage_N, ratio_N.clamp(low, high) * advantage_N)


def _surrogate(logp_N: Tensor, old_logp_N: Tensor, row_N: Tensor, step: Step) -> Tensor:
    advantage_N = step.advantage_B[row_N]
    return clipped_surrogate(logp_N, old_logp_N, advantage_N, clip_low=step.clip_low, clip_high=step.clip_high)


def grpo_loss(logp_N: Tensor, old_logp_N: Tensor, row_N: Tensor, step: Step) -> Tensor:
    """Average the surrogate over the tokens of a response, then over the responses: (1/B) Σ_i (1/|o_i|) Σ_t.

    Source: GRPO, "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
    https://arxiv.org/abs/2402.03300, equation 3, without its KL penalty.
    """
    return (_surrogate(logp_N, old_logp_N, row_N, step) / step.length_B[row_N]).sum() / step.completions


def dr_grpo_loss(logp_N: Tensor, old_logp_N: Tensor, row_N: Tensor, step: Step) -> Tensor:
    """Sum the surrogate over the tokens, divide by a constant, average over the responses: (1/B) Σ_i Σ_t / limit.

    The constant is the length limit, so that a token counts alike in short and in long responses.
    Source: Dr. GRPO, "Understanding R1-Zero-Like Training: A Critical Perspective", https://arxiv.org/abs/2503.20783.
    """
    return _surrogate(logp_N, old_logp_N, row_N, step).sum() / (step.max_response_tokens * step.completions)


def rloo_loss(logp_B: Tensor, old_logp_B: Tensor, row_B: Tensor, step: Step) -> Tensor:
    """Average the surrogate over responses, each of which is one action with one ratio.

    Source: REINFORCE leave-one-out, "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human
    Feedback in LLMs", https://arxiv.org/abs/2402.14740, which has no ratio: it takes one optimizer step a batch. For
    later ones the ratio of the whole response is clipped, as PPO clips that of a token.
    """
    return _surrogate(logp_B, old_logp_B, row_B, step).sum() / step.completions


def reinforce_loss(logp_N: Tensor, old_logp_N: Tensor, row_N: Tensor, step: Step) -> Tensor:
    """Sum the surrogate over the tokens, average over the responses: (1/B) Σ_i Σ_t.

    Source: REINFORCE, "Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning",
    https://doi.org/10.1007/BF00992696, which has no ratio; for later optimizer steps that of each token is clipped.
    """
    return _surrogate(logp_N, old_logp_N, row_N, step).sum() / step.completions
