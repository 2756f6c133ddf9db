"""The baselines by name: which advantages go with which loss, at which level.

Shapes: P prompt groups, G completions of a group.
Advantages are made of labels alone and before anything but unjudged samples is masked, so that leaving a completion
out of the loss never changes the baseline of the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor  # noqa: TID253 - tensors are what this package computes on

from pacs.algo.objectives import PolicyLoss
from pacs.algo.policy_gradient import dr_grpo_loss, grpo_loss, reinforce_loss, rloo_loss
from pacs.algo.scores import dr_grpo, grpo, rloo

__all__ = ["BASELINES", "Baseline", "batch_mean_advantage"]


@dataclass(frozen=True)
class Baseline:
    """One baseline.

    Args:
        level: what an action is: a response token, or the whole response.
        advantage: (label_PG, judged_PG) → advantage_PG, 0 where not judged.
        loss: of the actions.

    """

    level: Literal["token", "sequence"]
    advantage: Callable[[Tensor, Tensor], Tensor]
    loss: PolicyLoss


def batch_mean_advantage(label_PG: Tensor, judged_PG: Tensor) -> Tensor:
    """Compute A = R − mean R over all judged samples given, of all groups: REINFORCE's constant baseline.

    Source: the reinforcement baseline of "Simple Statistical Gradient-Following Algorithms for Connectionist
    Reinforcement Learning", https://doi.org/10.1007/BF00992696, here the mean of the batch.

    Args:
        label_PG: R.
        judged_PG: bool, false where the label is invalid.

    Returns:
        advantage_PG: 0 where not judged.

    """
    label_PG = label_PG.masked_fill(~judged_PG, 0.0)
    mean = label_PG.sum() / judged_PG.sum().clamp(min=1)
    return (label_PG - mean).masked_fill(~judged_PG, 0.0)


BASELINES: dict[str, Baseline] = {
    # The scores of PACS, of labels instead of log-ratios, are the advantages of the methods they are named after. The
    # GRPO paper says neither which standard deviation nor what where it is 0: unbiased and + 1e-6 are verl's choice,
    # https://github.com/volcengine/verl/blob/main/verl/trainer/ppo/core_algos.py
    "grpo": Baseline("token", grpo, grpo_loss),
    "dr_grpo": Baseline("token", dr_grpo, dr_grpo_loss),
    "rloo": Baseline("sequence", rloo, rloo_loss),
    "reinforce": Baseline("token", batch_mean_advantage, reinforce_loss),
}
