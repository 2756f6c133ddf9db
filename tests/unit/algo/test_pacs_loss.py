"""Properties of the PACS loss beyond the golden figures."""

import math

import pytest
import torch  # noqa: TID253
from hypothesis import given
from hypothesis import strategies as st

from pacs.algo import coefficients, pacs_loss

F64 = torch.float64


def make_batch(groups=3, group_size=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    size = groups * group_size
    logp_B = torch.randn(size, generator=generator, dtype=F64) * 3
    ref_logp_B = torch.randn(size, generator=generator, dtype=F64)
    label_B = torch.randint(0, 2, (size,), generator=generator)
    return logp_B, ref_logp_B, label_B, torch.ones(size, dtype=torch.bool)


@given(st.integers(1, 7), st.sampled_from([0.5, 1.0, 2.0]))
def test_at_the_reference_pacs_is_a_policy_gradient_with_known_advantages(correct, beta):
    group_size = 8
    label_B = (torch.arange(group_size) < correct).long()
    zeros_B = torch.zeros(group_size, dtype=F64)
    c_B = coefficients(
        zeros_B, zeros_B, label_B, label_B >= 0, group_size=group_size, beta=beta, count=group_size, score="rloo"
    )
    positive, negative = group_size / (4 * correct), -group_size / (4 * (group_size - correct))
    advantage_B = torch.where(label_B == 1, positive, negative).double() * group_size / (group_size - 1)
    # float32 weights: seven digits.
    assert torch.allclose(c_B, -beta * advantage_B / group_size, rtol=1e-6, atol=0)


def test_coefficients_couple_a_group_through_its_errors_only():
    logp_B, ref_B, label_B, valid_B = make_batch()
    beta, count = 1.5, 40
    out = pacs_loss(logp_B, ref_B, label_B, valid_B, group_size=4, beta=beta, count=count)
    error_PG = out.weight_PG * (out.score_PG.sigmoid() - label_B.view(-1, 4))
    others_PG = (error_PG.sum(-1, keepdim=True) - error_PG) / 3
    expected_B = beta / count * (error_PG - others_PG).flatten()
    actual_B = coefficients(logp_B, ref_B, label_B, valid_B, group_size=4, beta=beta, count=count)
    assert torch.allclose(actual_B, expected_B, rtol=0, atol=1e-12)


@given(st.permutations(range(3)), st.permutations(range(4)))
def test_order_of_groups_and_samples_does_not_matter(groups, samples):
    batch = make_batch()
    order = torch.tensor([g * 4 + s for g in groups for s in samples])
    shuffled = [tensor[order] for tensor in batch]
    c_B = coefficients(*batch, group_size=4, count=12)
    assert torch.allclose(coefficients(*shuffled, group_size=4, count=12), c_B[order], rtol=0, atol=1e-12)
    loss, shuffled_loss = (pacs_loss(*b, group_size=4, count=12).loss for b in (batch, shuffled))
    assert shuffled_loss.item() == pytest.approx(loss.item(), abs=1e-12)


def test_losses_of_parts_add_up_under_one_global_count():
    batch = make_batch(groups=5)
    whole = pacs_loss(*batch, group_size=4, count=20).loss
    first = pacs_loss(*[t[:8] for t in batch], group_size=4, count=20).loss
    second = pacs_loss(*[t[8:] for t in batch], group_size=4, count=20).loss
    assert (first + second).item() == pytest.approx(whole.item(), abs=1e-12)


@pytest.mark.parametrize("score", ["rloo", "grpo", "dr_grpo", "naive"])
@pytest.mark.parametrize("gradient", ["pathwise", "full"])
def test_invalid_samples_change_nothing_for_the_others(score, gradient):
    logp_B, ref_B, label_B, valid_B = make_batch(groups=1, group_size=5, seed=3)
    label_B[:] = torch.tensor([1, 0, 1, 0, 0])
    keep_B = torch.tensor([0, 1, 2])
    few = coefficients(
        *[t[keep_B] for t in (logp_B, ref_B, label_B, valid_B)], group_size=3, count=9, score=score, gradient=gradient
    )
    logp_B[3:], label_B[3:], valid_B[3:] = math.nan, -1, False
    many = coefficients(logp_B, ref_B, label_B, valid_B, group_size=5, count=9, score=score, gradient=gradient)
    assert torch.allclose(many[:3], few, rtol=0, atol=1e-12)
    assert many[3:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("valid", [[False, False, False], [True, False, False]])
def test_a_group_without_a_valid_pair_counts_for_nothing(valid):
    logp_B = torch.tensor([1.0, 2.0, math.nan], requires_grad=True)
    out = pacs_loss(
        logp_B, torch.zeros(3), torch.tensor([1, 0, 1]), torch.tensor(valid), group_size=3, count=3, score="rloo"
    )
    out.loss.backward()
    assert out.loss.item() == 0.0
    assert out.score_PG.tolist() == [[0.0, 0.0, 0.0]]
    assert out.weight_PG.tolist() == [[0.0, 0.0, 0.0]]
    assert logp_B.grad.tolist() == [0.0, 0.0, 0.0]


def test_saturated_scores_stay_finite_in_single_precision():
    logp_B = torch.tensor([-4000.0, 4000.0, 0.0, 10.0])
    label_B = torch.tensor([1, 0, 0, 1])
    out = pacs_loss(logp_B, torch.zeros(4), label_B, label_B >= 0, group_size=4, count=4)
    c_B = coefficients(logp_B, torch.zeros(4), label_B, label_B >= 0, group_size=4, count=4)
    # ψ = -16010/3, 5330, -10/3, 10
    expected = (16010 / 3 + 5330 + math.log1p(math.exp(-10 / 3)) + math.log1p(math.exp(-10))) / 4
    assert out.loss.item() == pytest.approx(expected, rel=1e-6)
    assert bool(c_B.isfinite().all())
    assert c_B[0].item() < 0 < c_B[1].item()


def test_bfloat16_log_probabilities_are_scored_in_single_precision():
    logp_B = torch.tensor([-300.0, -301.0], dtype=torch.bfloat16)
    label_B = torch.tensor([1, 0])
    out = pacs_loss(logp_B, torch.zeros(2), label_B, label_B >= 0, group_size=2, count=2)
    assert out.loss.dtype == out.score_PG.dtype == torch.float32


def test_mean_logprob_needs_no_reference():
    logp_B = torch.tensor([-6.0, -2.0], dtype=F64)
    length_B = torch.tensor([3, 4])
    label_B = torch.tensor([1, 0])
    out = pacs_loss(
        logp_B, None, label_B, label_B >= 0, group_size=2, beta=2.0, count=2, length_B=length_B, score="naive"
    )
    assert out.log_ratio_B.tolist() == [-4.0, -1.0]
    assert out.loss.item() == pytest.approx((math.log1p(math.exp(4)) + math.log1p(math.exp(-1))) / 2)


def toy_step(gradient):
    """One small descent step of a softmax policy over four answers; returns how log π of each sample moved."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(4, generator=generator, dtype=F64).requires_grad_()
    label_B = torch.tensor([1, 0, 0, 0])
    # The correct sample lies below its peers: low ψ.
    ref_logp_B = logits.log_softmax(-1).detach() - torch.tensor([-2.0, 1.0, 0.5, 0.5], dtype=F64)
    logp_B = logits.log_softmax(-1)
    c_B = coefficients(logp_B, ref_logp_B, label_B, label_B >= 0, group_size=4, count=4, gradient=gradient)
    (c_B * logp_B).sum().backward()
    after_B = (logits - 1e-3 * logits.grad).log_softmax(-1)
    return (after_B - logp_B).detach()


def test_a_correct_sample_with_a_low_score_goes_up_pathwise_and_down_in_full():
    assert toy_step("pathwise")[0].item() > 0
    assert toy_step("full")[0].item() < 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"group_size": 5}, "whole groups"),
        ({"count": 0}, "count must be the positive number"),
        ({"score": "median"}, "score must be one of rloo"),
        ({"class_weight": "heavy"}, "class_weight must be one of balanced"),
        ({"gradient": "half"}, "gradient must be pathwise or full"),
        ({"group_size": 1}, "group_size must be at least 2 for the rloo score"),
        ({"length_B": torch.ones(3)}, "length_B must have the shape of logp_B"),
    ],
)
def test_broken_input_is_refused(change, message):
    options = {"group_size": 4, "count": 12, **change}
    with pytest.raises(ValueError, match=message):
        coefficients(*make_batch(), **options)


def test_neither_reference_nor_lengths_is_refused():
    logp_B, _, label_B, valid_B = make_batch()
    with pytest.raises(ValueError, match="got neither"):
        pacs_loss(logp_B, None, label_B, valid_B, group_size=4, count=12)


def test_smoothed_labels_pull_by_hand():
    """ε = 0.2: targets 0.9 and 0.1; at ψ = 0 both errors shrink from ½ to 0.4."""
    zeros_B, label_B = torch.zeros(2, dtype=F64), torch.tensor([1, 0])
    options = {"group_size": 2, "count": 2, "class_weight": "none"}
    out = pacs_loss(zeros_B, zeros_B, label_B, label_B >= 0, **options, label_smoothing=0.2)
    assert out.loss.item() == pytest.approx(math.log(2))
    c_B = coefficients(zeros_B, zeros_B, label_B, label_B >= 0, **options, label_smoothing=0.2)
    assert c_B.tolist() == pytest.approx([(-0.4 - 0.4) / 2, (0.4 + 0.4) / 2])
    naive_B = coefficients(zeros_B, zeros_B, label_B, label_B >= 0, **options, label_smoothing=0.2, score="naive")
    assert naive_B.tolist() == pytest.approx([-0.4 / 2, 0.4 / 2]), "no peer hides a shift of both targets"


def test_smoothed_labels_have_a_finite_best_score():
    """σ(ψ) = 0.95 at ε = 0.1: there the gradient is 0, and beyond it turns around."""
    label_B, best = torch.tensor([1, 0]), math.log(0.95 / 0.05)
    for distance, sign in ((0.0, 0), (-0.5, -1), (0.5, 1)):
        half = (best + distance) / 2  # ψ of two samples is ± their difference
        logp_B = torch.tensor([half, -half], dtype=F64)
        c_B = coefficients(
            logp_B, torch.zeros(2, dtype=F64), label_B, label_B >= 0, group_size=2, count=2, label_smoothing=0.1
        )
        assert (c_B[0].item() > 1e-9) - (c_B[0].item() < -1e-9) == sign


@pytest.mark.parametrize("gradient", ["pathwise", "full"])
def test_no_smoothing_changes_no_bit(gradient):
    batch = make_batch()
    plain = coefficients(*batch, group_size=4, count=12, gradient=gradient)
    assert torch.equal(coefficients(*batch, group_size=4, count=12, gradient=gradient, label_smoothing=0.0), plain)


def test_all_labels_smoothed_away_is_refused():
    with pytest.raises(ValueError, match="label_smoothing must lie in"):
        pacs_loss(*make_batch(), group_size=4, count=12, label_smoothing=1.0)
