"""Scores and class weights, against hand-computed figures."""

import math

import pytest
import torch  # noqa: TID253
from hypothesis import given
from hypothesis import strategies as st

from pacs.algo import class_weights, masked_sum, mean_logprob, score_groups

F64 = torch.float64
finite = st.floats(-50, 50)


def row(*values):
    return torch.tensor([values], dtype=F64)


def valid(*values):
    return torch.tensor([values], dtype=torch.bool)


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ("rloo", [-1.5, 0.0, 1.5]),
        ("dr_grpo", [-1.0, 0.0, 1.0]),
        ("grpo", [-1 / (1 + 1e-6), 0.0, 1 / (1 + 1e-6)]),
        ("naive", [1.0, 2.0, 3.0]),
    ],
)
def test_scores_by_hand_with_one_invalid_sample(score, expected):
    scores = score_groups(row(1.0, 2.0, math.nan, 3.0), valid(1, 1, 0, 1), score=score)
    assert scores[0, [0, 1, 3]].tolist() == pytest.approx(expected, abs=1e-12)
    assert scores[0, 2].item() == 0.0


def test_one_valid_sample_has_a_naive_score_only():
    lonely = row(5.0, 7.0), valid(1, 0)
    assert score_groups(*lonely, score="naive").tolist() == [[5.0, 0.0]]
    for score in ("rloo", "grpo", "dr_grpo"):
        assert score_groups(*lonely, score=score).tolist() == [[0.0, 0.0]]


@given(st.lists(finite, min_size=2, max_size=8), finite)
def test_rloo_ignores_a_shift_and_sums_to_zero(values, shift):
    all_valid = valid(*[1] * len(values))
    scores = score_groups(row(*values), all_valid, score="rloo")
    moved = score_groups(row(*values) + shift, all_valid, score="rloo")
    assert torch.allclose(scores, moved, rtol=0, atol=1e-10)
    assert scores.sum().item() == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize("score", ["rloo", "grpo", "dr_grpo", "naive"])
def test_gradients_agree_with_finite_differences(score):
    log_ratio = row(0.3, -1.2, 0.7, 2.0).requires_grad_()
    assert torch.autograd.gradcheck(lambda r: score_groups(r, valid(1, 1, 0, 1), score=score), (log_ratio,))


def test_grpo_of_equal_log_ratios_has_a_finite_gradient():
    log_ratio = row(0.0, 0.0, 0.0).requires_grad_()
    scores = score_groups(log_ratio, valid(1, 1, 1), score="grpo")
    scores[0, 0].backward()
    assert scores.tolist() == [[0.0, 0.0, 0.0]]
    assert log_ratio.grad[0].tolist() == pytest.approx([2e6 / 3, -1e6 / 3, -1e6 / 3])


def test_masked_sum_ignores_what_lies_outside_and_adds_in_single_precision():
    logp_BT = torch.tensor([[-1.0, -2.0, math.nan], [-300.0, -1.0, -1.0]], dtype=torch.bfloat16)
    total_B = masked_sum(logp_BT, torch.tensor([[1, 1, 0], [1, 1, 1]]))
    assert total_B.dtype == torch.float32
    # In bfloat16 the last row would stay at -300 or jump to -304.
    assert total_B.tolist() == [-3.0, -302.0]


def test_mean_logprob_of_an_empty_response_is_finite():
    assert mean_logprob(torch.tensor([0.0, -6.0]), torch.tensor([0, 3]), beta=0.5).tolist() == [0.0, -1.0]


@pytest.mark.parametrize(
    ("class_weight", "expected"),
    [
        ("balanced", [2.0, 2 / 3, 2 / 3, 0.0, 2 / 3]),
        ("none", [1.0, 1.0, 1.0, 0.0, 1.0]),
        ("positive_only", [1.0, 0.0, 0.0, 0.0, 0.0]),
        ("negative_only", [0.0, 1.0, 1.0, 0.0, 1.0]),
    ],
)
def test_class_weights_count_valid_samples_only(class_weight, expected):
    label = torch.tensor([[1, 0, 0, 1, 0]])
    weights = class_weights(label, valid(1, 1, 1, 0, 1), class_weight=class_weight)
    assert weights[0].tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("label", [0, 1])
def test_one_label_only_weighs_one(label):
    labels = torch.tensor([[label, label, 1 - label]])
    assert class_weights(labels, valid(1, 1, 0), class_weight="balanced").tolist() == [[1.0, 1.0, 0.0]]


@given(st.lists(st.integers(0, 1), min_size=2, max_size=16))
def test_balanced_weights_give_both_labels_half_the_total(labels):
    label = torch.tensor([labels])
    weights = class_weights(label, label >= 0, class_weight="balanced")
    assert weights.sum().item() == pytest.approx(len(labels), rel=1e-5)
    if 0 < sum(labels) < len(labels):
        assert (weights * label).sum().item() == pytest.approx(len(labels) / 2, rel=1e-5)


def test_shapes_that_differ_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        score_groups(row(1.0, 2.0), valid(1, 1, 1), score="rloo")
    with pytest.raises(ValueError, match="one shape"):
        class_weights(torch.ones(1, 2), valid(1, 1, 1), class_weight="none")
    with pytest.raises(ValueError, match="one shape"):
        masked_sum(torch.ones(1, 2), torch.ones(2, 2))
