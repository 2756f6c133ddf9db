"""Health figures against hand-computed values."""

import math

import pytest
import torch  # noqa: TID253
from hypothesis import given
from hypothesis import strategies as st

from pacs.algo import (
    area_under_curve,
    brier,
    calibration_error,
    drift_per_token,
    length_slope,
    saturated_share,
    uniform_groups,
    uniform_share,
)


def logit(*probabilities):
    return torch.tensor([math.log(p / (1 - p)) for p in probabilities], dtype=torch.float64)


def labels(*values):
    return torch.tensor(values)


def test_calibration_error_weighs_bins_by_their_samples():
    # Bin 2: means 0.23 and 1/3; bin 9: 0.95 and 1.
    score_N = logit(0.21, 0.23, 0.25, 0.95)
    expected = 0.75 * abs(0.23 - 1 / 3) + 0.25 * 0.05
    assert calibration_error(score_N, labels(0, 1, 0, 1)) == pytest.approx(expected)


def test_certain_and_right_is_perfectly_calibrated():
    score_N = torch.tensor([1000.0, -1000.0])
    assert calibration_error(score_N, labels(1, 0)) == 0.0
    assert brier(score_N, labels(1, 0)) == 0.0


def test_brier_by_hand():
    assert brier(logit(0.2, 0.9), labels(1, 1)) == pytest.approx((0.64 + 0.01) / 2)


def test_area_under_curve_counts_ties_half():
    score_N = torch.tensor([0.0, 0.0, 1.0, -1.0])
    # Pairs (correct, wrong): (0, 0) half, (0, -1) one, (1, 0) one, (1, -1) one.
    assert area_under_curve(score_N, labels(1, 0, 1, 0)) == pytest.approx(3.5 / 4)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 1)), min_size=2, max_size=12))
def test_area_under_curve_equals_the_share_of_ordered_pairs(samples):
    scores, truth = zip(*samples, strict=True)
    right = [s for s, y in samples if y]
    wrong = [s for s, y in samples if not y]
    pairs = [(a > b) + (a == b) / 2 for a in right for b in wrong]
    expected = pytest.approx(sum(pairs) / len(pairs)) if pairs else None
    assert area_under_curve(torch.tensor(scores), labels(*truth)) == expected


def test_saturation_begins_where_the_slope_of_the_sigmoid_ends():
    assert saturated_share(torch.tensor([0.0, 6.8, -6.8, 7.0, -7.0])) == pytest.approx(0.4)


def test_length_slope_recovers_a_bias_per_token():
    length_N = torch.tensor([3, 10, 50, 7])
    noise_free = 0.25 - 0.02 * length_N
    assert length_slope(noise_free, length_N) == pytest.approx(-0.02, abs=1e-6)


def test_drift_is_a_mean_over_completions_of_nats_per_token():
    assert drift_per_token(torch.tensor([-2.0, 9.0]), torch.tensor([4, 3])) == pytest.approx((0.5 + 3) / 2)


def test_uniform_groups_look_at_valid_samples_only():
    label_PG = torch.tensor([[1, 1, 0], [1, 0, 0], [0, 0, 0], [1, 1, 1]])
    valid_PG = torch.tensor([[1, 1, 0], [1, 1, 1], [1, 1, 1], [0, 0, 0]])
    assert uniform_groups(label_PG, valid_PG).tolist() == [True, False, True, False]
    assert uniform_share(label_PG, valid_PG) == pytest.approx(2 / 3)


def test_figures_that_do_not_exist_are_none():
    nothing = torch.empty(0)
    for figure in (calibration_error, brier, area_under_curve, length_slope, drift_per_token):
        assert figure(nothing, nothing) is None
    assert saturated_share(nothing) is None
    assert uniform_share(torch.ones(2, 3), torch.zeros(2, 3)) is None
    assert area_under_curve(torch.tensor([1.0, 2.0]), labels(1, 1)) is None
    assert length_slope(torch.tensor([1.0, 2.0]), torch.tensor([5, 5])) is None


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match="one length"):
        brier(torch.ones(2), torch.ones(3))
