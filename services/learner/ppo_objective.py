"""PPO: advantages of tokens from a value function that is trained beside the policy. Formulas: docs/algorithm.md.

Shapes: B sequences of the batch, b those of the step, T response tokens, padded on the right; N the response tokens of
the batch, n those of the step, m those of the step's sequences that take part.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pacs.runtime.config import AlgorithmSection
from services.learner.batches import Batch
from services.learner.step_signal import (
    Signal,
    StepLogprobs,
    ValueSignal,
    engine_logprobs,
    importance_weighted,
    select_sequences,
)

if TYPE_CHECKING:
    from pacs.algo import Selection

__all__ = ["Ppo"]


class _Targets(NamedTuple):
    """Of the batch's response tokens, by the value function of its start; 0 where a sequence takes no part."""

    advantage_N: NDArray[np.float64]
    return_N: NDArray[np.float64]
    explained_variance: float | None


class Ppo:
    """See `services.learner.objective.Objective`; needs no other completions of a prompt.

    Args:
        algorithm: its settings.

    """

    has_reference = False
    reads_old = True
    reads_start = True  # values of states, of which differences are not enough
    by_group = False  # advantages are whitened over the batch, and values have coefficients of their own

    def __init__(self, algorithm: AlgorithmSection) -> None:
        self._algorithm = algorithm

    def select(self, batch: Batch) -> "Selection":
        """Decide which sequences take part, and under which label."""
        return select_sequences(batch, self._algorithm, dropped_labels_count=True)

    def teaching(self, batch: Batch, selection: "Selection") -> NDArray[np.bool_]:
        """Tell which sequences may have a coefficient."""
        return selection.trained_B.numpy()

    def __call__(
        self,
        logprobs: StepLogprobs,
        batch: Batch,
        selection: "Selection",
        rows: NDArray[np.int64],
        *,
        step_rows: NDArray[np.int64] | None = None,
    ) -> Signal:
        """Compute the step's signal; not of a share of it."""
        assert step_rows is None, "PPO has no shares of a step"
        import torch

        from pacs.algo import clipped_surrogate, clipped_value_loss, differentiate

        settings, targets = self._algorithm, self._targets(batch, selection, logprobs.start_values_B)
        takes_part_n = np.repeat(selection.trained_B.numpy()[rows], batch.response_tokens_B[rows])
        places_m = batch.places(rows)[takes_part_n]
        tokens = max(1, len(places_m))
        old_m, old_value_m = logprobs.old_b.tokens_N[takes_part_n], logprobs.old_b.values_N[takes_part_n]
        advantage, old = torch.from_numpy(targets.advantage_N[places_m]), torch.from_numpy(old_m)
        returned, old_value = torch.from_numpy(targets.return_N[places_m]), torch.from_numpy(old_value_m)
        clips = {"clip_low": settings.clip_low, "clip_high": settings.clip_high}
        policy_loss, coefficient = differentiate(
            lambda logp: clipped_surrogate(logp, old, advantage, **clips).sum() / tokens,
            torch.from_numpy(logprobs.policy_b.tokens_N[takes_part_n]),
        )
        value_clip = settings.value_clip or float("inf")
        value_loss, value_coefficient = differentiate(
            lambda value: clipped_value_loss(value, old_value, returned, clip=value_clip, tokens=tokens),
            torch.from_numpy(logprobs.policy_b.values_N[takes_part_n]),
        )
        coefficient_m = coefficient.numpy()
        if settings.importance_cap:
            engine_m = engine_logprobs(batch, rows).tokens_N[takes_part_n]
            coefficient_m = importance_weighted(coefficient_m, old_m, engine_m, settings.importance_cap)
        value_coefficient_m = settings.value_coefficient * value_coefficient.numpy()
        return Signal(
            float(policy_loss + settings.value_coefficient * value_loss),
            _scattered(coefficient_m, takes_part_n),
            value=ValueSignal(
                float(value_loss), _scattered(value_coefficient_m, takes_part_n), targets.explained_variance
            ),
        )

    def _targets(
        self, batch: Batch, selection: "Selection", start_values_B: tuple[NDArray[np.float32], ...]
    ) -> _Targets:
        """From the whole batch, so that all its optimizer steps see the same; the label is the last token's reward."""
        import torch

        from pacs.algo import explained_variance, gae, whiten

        settings, length_B = self._algorithm, torch.from_numpy(batch.response_tokens_B)
        inside_BT = torch.arange(int(length_B.max())) < length_B[:, None]
        last_BT = torch.arange(inside_BT.shape[1]) == length_B[:, None] - 1
        value_BT = torch.zeros(inside_BT.shape, dtype=torch.float64)
        value_BT[inside_BT] = torch.from_numpy(np.concatenate([np.zeros(0), *start_values_B]))
        reward_BT = last_BT * selection.label_B.double()[:, None]
        taking_part_BT = inside_BT & selection.trained_B[:, None]
        found = gae(reward_BT, value_BT, taking_part_BT, discount=settings.discount, trace_decay=settings.trace_decay)
        explained = explained_variance(value_BT[taking_part_BT], found.return_BT[taking_part_BT])
        if settings.whiten_advantages:
            found.advantage_BT[taking_part_BT] = whiten(found.advantage_BT[taking_part_BT])
        return _Targets(found.advantage_BT[inside_BT].numpy(), found.return_BT[inside_BT].numpy(), explained)


def _scattered(coefficient_m: NDArray[np.float64], takes_part_n: NDArray[np.bool_]) -> NDArray[np.float64]:
    coefficient_n = np.zeros(len(takes_part_n))
    coefficient_n[takes_part_n] = coefficient_m
    return coefficient_n
