"""The mathematics of PACS and of its baselines: tensors and scalars in, tensors and scalars out."""

from pacs.algo.baselines import BASELINES, Baseline, batch_mean_advantage
from pacs.algo.class_weights import ClassWeight, class_weights
from pacs.algo.health import (
    area_under_curve,
    brier,
    calibration_error,
    drift_per_token,
    length_slope,
    saturated_share,
    uniform_groups,
    uniform_share,
)
from pacs.algo.lora import merge_lora
from pacs.algo.objectives import PolicyLoss, Step, differentiate, importance_weights
from pacs.algo.pacs_loss import Gradient, PacsLoss, coefficients, pacs_loss
from pacs.algo.pass_at_k import avg_at_k, maj_at_k, pass_at_k
from pacs.algo.policy_gradient import clipped_surrogate, dr_grpo_loss, grpo_loss, reinforce_loss, rloo_loss
from pacs.algo.ppo import Gae, clipped_value_loss, explained_variance, gae, whiten
from pacs.algo.scores import (
    Score,
    dr_grpo,
    grpo,
    log_ratio,
    masked_sum,
    mean_logprob,
    naive,
    rloo,
    scorable,
    score_groups,
)
from pacs.algo.selection import Selection, Truncated, UniformGroups, select
from pacs.algo.token_logprobs import TokenLogprobs, token_logprobs

__all__ = [
    "BASELINES",
    "Baseline",
    "ClassWeight",
    "Gae",
    "Gradient",
    "PacsLoss",
    "PolicyLoss",
    "Score",
    "Selection",
    "Step",
    "TokenLogprobs",
    "Truncated",
    "UniformGroups",
    "area_under_curve",
    "avg_at_k",
    "batch_mean_advantage",
    "brier",
    "calibration_error",
    "class_weights",
    "clipped_surrogate",
    "clipped_value_loss",
    "coefficients",
    "differentiate",
    "dr_grpo",
    "dr_grpo_loss",
    "drift_per_token",
    "explained_variance",
    "gae",
    "grpo",
    "grpo_loss",
    "importance_weights",
    "length_slope",
    "log_ratio",
    "maj_at_k",
    "masked_sum",
    "mean_logprob",
    "merge_lora",
    "naive",
    "pacs_loss",
    "pass_at_k",
    "reinforce_loss",
    "rloo",
    "rloo_loss",
    "saturated_share",
    "scorable",
    "score_groups",
    "select",
    "token_logprobs",
    "uniform_groups",
    "uniform_share",
    "whiten",
]
