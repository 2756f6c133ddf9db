"""The parts of PPO that the other objectives lack: advantages from a value function, their scale, and its loss.

Shapes: B sequences, T response tokens, padded on the right; N tokens of any share of an optimizer step.
"""

import math
from typing import NamedTuple

import torch  # noqa: TID253 - tensors are what this package computes on
from torch import Tensor  # noqa: TID253

__all__ = ["Gae", "clipped_value_loss", "explained_variance", "gae", "whiten"]

WHITEN_EPSILON = 1e-8  # under the root, as in verl and TRL


class Gae(NamedTuple):
    """Attributes: advantage_BT and return_BT = advantage + value, the value function's target; 0 outside the mask."""

    advantage_BT: Tensor
    return_BT: Tensor


def gae(reward_BT: Tensor, value_BT: Tensor, mask_BT: Tensor, *, discount: float, trace_decay: float) -> Gae:
    """Compute generalised advantages: A_t = Σ_l (γλ)^l δ_{t+l}, δ_t = reward_t + γ·value_{t+1} − value_t.

    The value after the last response token is 0: an episode ends with its response, also where it was cut.
    Source: "High-Dimensional Continuous Control Using Generalized Advantage Estimation",
    https://arxiv.org/abs/1506.02438, equation 16.

    Args:
        reward_BT: of each token; a verifiable reward stands on the last one.
        value_BT: the value function before each token; outside the mask it may be anything, NaN included.
        mask_BT: bool, true on response tokens.
        discount: γ.
        trace_decay: λ.

    Returns:
        Advantages and returns, without gradient.

    Raises:
        ValueError: shapes that differ, or γ or λ outside [0, 1].

    """
    if not reward_BT.shape == value_BT.shape == mask_BT.shape:
        shapes = f"{tuple(reward_BT.shape)}, {tuple(value_BT.shape)}, {tuple(mask_BT.shape)}"
        raise ValueError(f"reward_BT, value_BT and mask_BT must have one shape, got {shapes}")
    if not (0 <= discount <= 1 and 0 <= trace_decay <= 1):
        raise ValueError(f"discount and trace_decay must lie in [0, 1], got {discount}, {trace_decay}")
    outside_BT = ~mask_BT.bool()
    reward_BT = reward_BT.detach().masked_fill(outside_BT, 0.0)
    value_BT = value_BT.detach().masked_fill(outside_BT, 0.0)
    advantage_BT = torch.zeros_like(value_BT)
    next_value_B = next_advantage_B = value_BT.new_zeros(value_BT.shape[0])
    for t in reversed(range(value_BT.shape[1])):
        delta_B = reward_BT[:, t] + discount * next_value_B - value_BT[:, t]
        next_advantage_B = delta_B + discount * trace_decay * next_advantage_B
        next_value_B = value_BT[:, t]
        advantage_BT[:, t] = next_advantage_B
    return Gae(advantage_BT, advantage_BT + value_BT)


def clipped_value_loss(value_N: Tensor, old_value_N: Tensor, return_N: Tensor, *, clip: float, tokens: int) -> Tensor:
    """Compute ½ Σ max((V − R)², (V_old + clip(V − V_old, ±clip) − R)²) / tokens.

    Source: the code of PPO as described in "Implementation Matters in Deep Policy Gradients: A Case Study on PPO and
    TRPO", https://arxiv.org/abs/2005.12729, section 3.

    Args:
        value_N: of the value function as it is, with gradient.
        old_value_N: as it was at the batch's start.
        return_N: R, from `gae`.
        clip: how far a value may move and still be pulled on.
        tokens: response tokens of the whole optimizer step.

    Returns:
        The share's part of the loss, a scalar.

    Raises:
        ValueError: shapes that differ, or a clip or count that is not positive.

    """
    if not value_N.shape == old_value_N.shape == return_N.shape:
        shapes = f"{tuple(value_N.shape)}, {tuple(old_value_N.shape)}, {tuple(return_N.shape)}"
        raise ValueError(f"value_N, old_value_N and return_N must have one shape, got {shapes}")
    if clip <= 0 or tokens < 1:
        raise ValueError(f"clip and tokens must be positive, got clip={clip}, tokens={tokens}")
    near_N = old_value_N + (value_N - old_value_N).clamp(-clip, clip)
    return torch.maximum((value_N - return_N).square(), (near_N - return_N).square()).sum() / (2 * tokens)


def whiten(advantage_N: Tensor) -> Tensor:
    """Compute (A − mean A) / √(var A + 1e-8), with the unbiased variance; 0 where all are equal.

    Source: "The 37 Implementation Details of Proximal Policy Optimization",
    https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details/, detail 7.

    Args:
        advantage_N: of all tokens that take part; those that are not finite stay so and do not spoil the others.

    Returns:
        whitened_N.

    """
    finite_M = advantage_N[advantage_N.isfinite()]
    if not len(finite_M):
        return advantage_N
    centred_M = finite_M - finite_M.mean()
    variance = centred_M.square().sum() / max(1, len(finite_M) - 1)
    return (advantage_N - finite_M.mean()) / (variance + WHITEN_EPSILON).sqrt()


def explained_variance(value_N: Tensor, return_N: Tensor) -> float | None:
    """Compute 1 − var(R − V) / var R: 1 for a perfect value function, 0 for a constant, negative for a worse one.

    Args:
        value_N: V.
        return_N: R, from `gae`: made of V itself where λ < 1, which flatters V.

    Returns:
        None where the returns do not vary or are not finite.

    """
    if len(return_N) < 2:
        return None
    spread = float(return_N.var(correction=0))
    if not (math.isfinite(spread) and spread > 0):
        return None
    return 1 - float((return_N - value_N).var(correction=0)) / spread
