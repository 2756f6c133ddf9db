"""PPO's coefficients from log-probs, values and labels, against figures worked out here by plain arithmetic."""

import math
import statistics

import numpy as np
import pytest

from pacs.testing import make_config, make_labeled_group
from services.learner.batches import make_batch
from services.learner.engine import SequenceLogprobs
from services.learner.objective import make_objective
from services.learner.step_signal import StepLogprobs

RESPONSES = [[21, 22], [23, 24, 25]]
VALUES = [[0.5, 0.75], [0.25, 0.5, -0.25]]
# γ = 0.9, λ = 0.5: A_t = δ_t + 0.45·A_{t+1}, δ_t = 0.9·V_{t+1} − V_t, and at the last token label − V_t.
CORRECT = [0.9 * 0.75 - 0.5 + 0.45 * (1 - 0.75), 1 - 0.75]
WRONG = [0.9 * 0.5 - 0.25 + 0.45 * (0.9 * -0.25 - 0.5 + 0.45 * 0.25), 0.9 * -0.25 - 0.5 + 0.45 * 0.25, 0.25]
ADVANTAGES = [*CORRECT, *WRONG]
PLAIN = {"discount": 0.9, "trace_decay": 0.5, "whiten_advantages": False}


def arrays(rows):
    return tuple(np.array(row, dtype=np.float32) for row in rows)


def signal(batch, values, logprobs=None, now=None, rows=None, **settings):
    """The signal of a step; `now` is what log-probs and values have become, if they have."""
    objective = make_objective(make_config({f"algorithm.{k}": v for k, v in {"name": "ppo", **settings}.items()}))
    logprobs = logprobs or [[-1.0] * n for n in batch.response_tokens_B]
    rows = np.arange(len(batch)) if rows is None else rows

    def part(tokens, of_values):
        return SequenceLogprobs(arrays(tokens[r] for r in rows), 0.0, arrays(of_values[r] for r in rows))

    old = part(logprobs, values)
    step = StepLogprobs(part(*now) if now else old, old, old, arrays(values))
    return objective(step, batch, objective.select(batch), rows)


@pytest.fixture
def batch():
    return make_batch([make_labeled_group(0, (1, 0), responses=RESPONSES)])


def test_advantages_become_coefficients_of_log_probs_and_of_values(batch):
    got = signal(batch, VALUES, value_coefficient=0.25, **PLAIN)
    assert got.coefficient_n == pytest.approx([-a / 5 for a in ADVANTAGES]), "a mean over five tokens"
    assert got.value.coefficient_n == pytest.approx([-0.25 * a / 5 for a in ADVANTAGES]), "return − value = A"
    assert got.value.loss == pytest.approx(sum(a * a for a in ADVANTAGES) / 10)
    assert got.loss == pytest.approx(-sum(ADVANTAGES) / 5 + 0.25 * got.value.loss)
    returns = [a + v for a, v in zip(ADVANTAGES, [v for row in VALUES for v in row], strict=True)]
    explained = 1 - statistics.pvariance(ADVANTAGES) / statistics.pvariance(returns)
    assert got.value.explained_variance == pytest.approx(explained)


def test_by_default_a_label_reaches_back_through_the_response_and_advantages_are_whitened(batch):
    got = signal(batch, [[0.0] * 2, [0.0] * 3])
    advantages = [0.95, 1.0, 0.0, 0.0, 0.0]
    white = [(a - statistics.mean(advantages)) / statistics.stdev(advantages) for a in advantages]
    assert got.coefficient_n == pytest.approx([-w / 5 for w in white])
    assert got.value.coefficient_n == pytest.approx([-0.1 * a / 5 for a in advantages]), "returns are not whitened"


def test_ratios_and_values_that_moved_far_enough_are_no_longer_pulled_on(batch):
    """A: +, +, −, −, +. Values move by up to 0.5, the clip is 0.2; A is also how far each is from its return."""
    ratios = [1.5, 0.5, 0.5, 1.5, 1.1]
    tokens = np.split(-1 + np.log(ratios), [2])
    moved = [0.25, -0.5, -0.5, 0.5, 0.1]
    values = np.split(np.concatenate(VALUES) + moved, [2])
    got = signal(batch, VALUES, now=(tokens, values), value_clip=0.2, value_coefficient=1.0, **PLAIN)
    expected = [0.0, -0.5 * CORRECT[1] / 5, 0.0, -1.5 * WRONG[1] / 5, -1.1 * WRONG[2] / 5]
    assert got.coefficient_n == pytest.approx(expected)
    pulls = []
    for advantage, move in zip(ADVANTAGES, moved, strict=True):
        near = max(-0.2, min(0.2, move))
        stuck = near != move and abs(near - advantage) > abs(move - advantage)
        pulls.append(0.0 if stuck else (move - advantage) / 5)
    assert pulls.count(0.0) == 1, "one has moved too far towards its return"
    assert got.value.coefficient_n == pytest.approx(pulls, abs=1e-7)
    free = signal(batch, VALUES, now=(tokens, values), value_clip=0, clip_low=0, clip_high=0, **PLAIN)
    assert free.coefficient_n == pytest.approx([-r * a / 5 for r, a in zip(ratios, ADVANTAGES, strict=True)])
    assert free.value.coefficient_n == pytest.approx(
        [0.1 * (m - a) / 5 for m, a in zip(moved, ADVANTAGES, strict=True)], abs=1e-7
    )


@pytest.mark.parametrize("whiten_advantages", [True, False])
@pytest.mark.parametrize("truncated", ["as_labelled", "dropped"])
def test_who_takes_no_part_has_none(batch, whiten_advantages, truncated):
    """Invalid or dropped, without log-probs or values: the others are as if it were not there."""
    label, reason = (-1, "stop") if truncated == "as_labelled" else (1, "length")
    left_out = make_labeled_group(1, (label, label), responses=RESPONSES, finish_reason=reason)
    larger = make_batch([make_labeled_group(0, (1, 0), responses=RESPONSES), left_out])
    nothing = [[math.nan] * 2, [math.nan] * 3]
    settings = {"whiten_advantages": whiten_advantages, "truncated": truncated, "importance_cap": 2.0}
    alone = signal(batch, VALUES, **settings)
    got = signal(larger, VALUES + nothing, logprobs=[[-1.0] * 2, [-1.0] * 3, *nothing], **settings)
    for one, other in zip(got.coefficients, alone.coefficients, strict=True):
        assert one[:5].tolist() == other.tolist()
        assert not one[5:].any()
    assert (got.loss, got.value.explained_variance) == (alone.loss, alone.value.explained_variance)


def test_truncated_ones_may_count_as_wrong():
    cut = make_batch([make_labeled_group(0, (1, 1), responses=RESPONSES, finish_reason="length")])
    wrong = make_batch([make_labeled_group(0, (0, 0), responses=RESPONSES)])
    got, expected = signal(cut, VALUES, truncated="wrong"), signal(wrong, VALUES)
    assert got.coefficient_n.tolist() == expected.coefficient_n.tolist()


def test_steps_of_a_batch_share_its_advantages_and_its_whitening():
    groups = [make_labeled_group(n, labels, responses=RESPONSES) for n, labels in enumerate([(1, 0), (0, 1)])]
    batch = make_batch(groups)
    values = [*VALUES, [0.125, -0.5], [0.0, 0.75, 1.0]]
    whole = signal(batch, values)
    halves = [signal(batch, values, rows=rows) for rows in (np.arange(2), np.arange(2, 4))]
    for n in range(2):
        joined = np.concatenate([half.coefficients[n] for half in halves])
        assert joined / 2 == pytest.approx(whole.coefficients[n]), "5 of 10 tokens each"
    assert {half.value.explained_variance for half in halves} == {whole.value.explained_variance}


def test_importance_weights_are_those_of_tokens(batch):
    """The engine's log-probs are −0.5, −1, −1.5, …; the old policy's are −1."""
    plain, capped = signal(batch, VALUES, **PLAIN), signal(batch, VALUES, importance_cap=1.25, **PLAIN)
    weights = np.minimum(np.exp([-0.5, 0.0, -0.5, 0.0, 0.5]), 1.25)
    assert capped.coefficient_n == pytest.approx(plain.coefficient_n * weights)
    assert capped.value.coefficient_n.tolist() == plain.value.coefficient_n.tolist()


def test_a_value_that_is_not_finite_shows_in_its_own_step_only():
    batch = make_batch([make_labeled_group(n, (1, 0), responses=RESPONSES) for n in range(2)])
    values = [[math.nan, 0.0], VALUES[1], *VALUES]
    first, second = (signal(batch, values, rows=rows) for rows in (np.arange(2), np.arange(2, 4)))
    assert not np.isfinite(first.coefficient_n).all()
    assert np.isfinite(second.coefficients).all()
    assert second.value.explained_variance is None


@pytest.mark.parametrize("labels", [(-1, -1), (1, 0)])
def test_where_nothing_takes_part_there_is_no_gradient(labels):
    responses = [[], []] if labels == (1, 0) else RESPONSES
    batch = make_batch([make_labeled_group(0, labels, responses=responses)])
    got = signal(batch, [[math.nan] * len(tokens) for tokens in responses])
    assert got.loss == 0.0
    assert not np.any(got.coefficients)
    assert got.value.explained_variance is None


def test_one_completion_a_prompt_is_enough():
    batch = make_batch([make_labeled_group(0, (1,), responses=[[21, 22]])])
    assert (signal(batch, [[0.0, 0.0]], whiten_advantages=False).coefficient_n < 0).all()


def test_it_reads_log_probs_and_values_of_the_start_and_no_reference():
    objective = make_objective(make_config({"algorithm.name": "ppo"}))
    assert (objective.reads_start, objective.reads_old, objective.has_reference) == (True, True, False)
