"""The mathematics of PACS: tensors and scalars in, tensors and scalars out."""

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
from pacs.algo.pacs_loss import Gradient, PacsLoss, coefficients, pacs_loss
from pacs.algo.pass_at_k import avg_at_k, maj_at_k, pass_at_k
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
from pacs.algo.token_logprobs import TokenLogprobs, token_logprobs

__all__ = [
    "ClassWeight",
    "Gradient",
    "PacsLoss",
    "Score",
    "TokenLogprobs",
    "area_under_curve",
    "avg_at_k",
    "brier",
    "calibration_error",
    "class_weights",
    "coefficients",
    "dr_grpo",
    "drift_per_token",
    "grpo",
    "length_slope",
    "log_ratio",
    "maj_at_k",
    "masked_sum",
    "mean_logprob",
    "naive",
    "pacs_loss",
    "pass_at_k",
    "rloo",
    "saturated_share",
    "scorable",
    "score_groups",
    "token_logprobs",
    "uniform_groups",
    "uniform_share",
]
