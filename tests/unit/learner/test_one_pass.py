"""The coefficients of whole groups: those of the step, on whatever rank and for whatever share of its groups."""

import numpy as np
import pytest

from pacs.testing import make_config, make_labeled_group
from services.learner.batches import make_batch
from services.learner.engine import SequenceLogprobs
from services.learner.objective import make_objective
from services.learner.one_pass import GroupCoefficients
from services.learner.orders import Order, batch_of, batch_order, decode_order, encode_order
from services.learner.step_signal import StepLogprobs

LABELS = [(1, 0, 1), (0, 0, 1), (1, -1, 0), (1, 1, 1)]
STEP_ROWS = np.arange(3, 12)  # of the second to the fourth group


def logprobs(batch, seed):
    rng = np.random.default_rng(seed)
    return SequenceLogprobs(
        tuple(-rng.exponential(size=n).astype(np.float32) for n in batch.response_tokens_B[STEP_ROWS]), 0.0
    )


@pytest.fixture
def batch():
    return make_batch([make_labeled_group(n, labels) for n, labels in enumerate(LABELS)])


def travelled(config, batch, coefficients):
    """As another rank has them."""
    there = batch_of(decode_order(*encode_order(batch_order(batch))))
    order = decode_order(*encode_order(Order("one_pass", arrays={"rows": STEP_ROWS, **coefficients.arrays()})))
    return GroupCoefficients.of_arrays(config, there, order.arrays["rows"], order.arrays)


@pytest.mark.parametrize("knows_old", [False, True])
@pytest.mark.parametrize("knows_reference", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{}, {"importance_cap": 1.5}, {"gradient": "full", "class_weight": "none"}, {"name": "grpo"}, {"name": "rloo"}],
    ids=str,
)
def test_every_rank_finds_those_of_the_whole_step(batch, settings, knows_old, knows_reference):
    config = make_config({f"algorithm.{key}": value for key, value in settings.items()})
    objective, policy = make_objective(config), logprobs(batch, 0)
    selection = objective.select(batch)
    old, reference = (logprobs(batch, 1) if knows_old else None), (logprobs(batch, 2) if knows_reference else None)
    whole = StepLogprobs(policy, old or policy, reference or old or policy)
    expected = objective(whole, batch, selection, STEP_ROWS).coefficient_n
    own = GroupCoefficients(objective, batch, selection, STEP_ROWS, old, reference)
    elsewhere = travelled(config, batch, own)
    for coefficients in (own, elsewhere):
        found = [
            coefficients(np.arange(first, first + 3), policy.of(np.arange(first - 3, first))) for first in (6, 3, 9)
        ]
        in_order = np.concatenate([found[1], found[0], found[2]])
        assert in_order == pytest.approx(expected, abs=1e-15)
        assert np.array_equal(in_order == 0, expected == 0)
    assert np.abs(expected).max() > 0
