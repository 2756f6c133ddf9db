"""How much of a score is rounding: log-probs of one policy, computed twice in different packing, should be equal."""

import logging
import math

import numpy as np

from pacs.runtime.config import RunConfig
from services.learner.batches import Batch
from services.learner.engine import TrainingEngine

__all__ = ["NoiseFloor", "noise_bound"]

FLOAT32_BOUND = 1e-4
BFLOAT16_BOUND_PER_TOKEN = 0.03  # the most that was measured is 0.025, see docs/algorithm.md

logger = logging.getLogger(__name__)


def noise_bound(dtype: str, longest_tokens: int) -> float:
    """Largest |ψ| of an untouched policy that is no cause for worry, for responses up to some tokens."""
    return FLOAT32_BOUND if dtype == "float32" else BFLOAT16_BOUND_PER_TOKEN * longest_tokens


class NoiseFloor:
    """Measures an untouched policy's largest |ψ| on the first group that this process trains on.

    Args:
        engine: holds the policy.
        config: of the run.

    """

    def __init__(self, engine: TrainingEngine, config: RunConfig) -> None:
        self._engine = engine
        self._config = config
        self._measured: float | None = None

    def measured_once(self, batch: Batch) -> float | None:
        """The figure, from the first batch on that has one; None where the objective has no scores."""
        if self._measured is None and self._config.algorithm.name == "pacs":
            measured = self._measure(batch)
            if math.isfinite(measured):
                self._judge(measured, noise_bound(self._config.model.dtype, int(batch.response_tokens_B.max())))
                self._measured = measured
        return self._measured

    def _measure(self, batch: Batch) -> float:
        import torch

        from pacs.algo import score_groups

        rows = np.arange(batch.group_size)  # one group: each of its rows takes a pass of its own
        together_b = self._engine.logprobs(batch, rows).sum_B
        apart_b = np.array([self._engine.logprobs(batch, rows[n : n + 1]).sum_B[0] for n in rows])
        log_ratio_PG = torch.from_numpy(self._config.algorithm.beta * (together_b - apart_b)).view(-1, batch.group_size)
        everyone_PG = torch.ones_like(log_ratio_PG, dtype=torch.bool)
        score_PG = score_groups(log_ratio_PG, everyone_PG, score="rloo" if batch.group_size > 1 else "naive")
        return float(score_PG.abs().max())

    def _judge(self, measured: float, bound: float) -> None:
        said = f"an untouched policy scores up to |psi| = {measured:.2g} in {self._config.model.dtype}"
        if measured <= bound:
            logger.info("%s (bound %g)", said, bound)
            return
        logger.warning(
            "%s, above the bound of %g: scores are partly rounding; shorten responses, lower algorithm.beta or train "
            "in float32",
            said,
            bound,
        )
