"""Every figure of tests/golden/pacs_loss.json, in float64."""

import math

import pytest
import torch  # noqa: TID253

from pacs.algo import coefficients, masked_sum, pacs_loss


def close(values, expected):
    assert torch.allclose(values.double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)


def padded(rows):
    """Token log-probabilities as a padded batch whose padding is NaN, with its mask."""
    width = max(len(row) for row in rows)
    logp_BT = torch.tensor([[*row, *[math.nan] * (width - len(row))] for row in rows], dtype=torch.float64)
    return logp_BT, ~logp_BT.isnan()


def arguments(case):
    logp_BT, mask_BT = padded(case["policy_logprobs"])
    ref_logp_BT, _ = padded(case["reference_logprobs"])
    tensors = (
        masked_sum(logp_BT, mask_BT),
        masked_sum(ref_logp_BT, mask_BT),
        torch.tensor(case["labels"]),
        torch.ones(len(case["labels"]), dtype=torch.bool),
    )
    options = {name: case[name] for name in ("group_size", "beta", "score", "class_weight")}
    return tensors, {**options, "count": len(case["labels"])}


def test_loss_scores_and_weights(case):
    tensors, options = arguments(case)
    out = pacs_loss(*tensors, **options)
    assert out.loss.item() == pytest.approx(case["loss"], abs=1e-9)
    close(out.log_ratio_B, case["log_ratio_reward"])
    close(out.score_PG.flatten(), case["psi"])
    close(out.weight_PG.flatten(), case["weights"])


def test_gradient_reaches_every_token(case):
    logp_BT, mask_BT = padded(case["policy_logprobs"])
    logp_BT.requires_grad_()
    (_, *others), options = arguments(case)
    pacs_loss(masked_sum(logp_BT, mask_BT), *others, **options).loss.backward()
    for row, length, expected in zip(logp_BT.grad, case["lengths"], case["dloss_dlogprob_per_sequence"], strict=True):
        close(row[:length], [expected] * length)
        close(row[length:], [0.0] * (len(row) - length))


def test_pathwise_coefficients(case):
    tensors, options = arguments(case)
    close(coefficients(*tensors, **options, gradient="pathwise"), case["dloss_dlogprob_per_sequence"])


def test_full_coefficients_and_their_signs(case_with_full_gradient):
    case = case_with_full_gradient
    tensors, options = arguments(case)
    full = coefficients(*tensors, **options, gradient="full")
    close(full, case["dloss_dlogprob_per_sequence_full"])

    pathwise = coefficients(*tensors, **options, gradient="pathwise")
    # The golden file lists the samples below their peers; at ψ ≥ 0 the signs may differ too.
    low = [k for k, label in enumerate(case["labels"]) if label and case["psi"][k] < 0]
    opposed = [k for k in low if pathwise[k] < 0 < full[k]]
    assert opposed == case["correct_samples_pathwise_raises_and_full_lowers"]


@pytest.mark.parametrize(("gradient", "direction"), [("pathwise", 1), ("full", -1)])
def test_a_small_step_moves_the_listed_samples_as_the_gradient_says(case_with_opposed_samples, gradient, direction):
    """On a policy of one softmax a group, over its samples and one more outcome for all the rest of the probability."""
    case = case_with_opposed_samples
    listed = case["correct_samples_pathwise_raises_and_full_lowers"]
    (logp_B, *others), options = arguments(case)
    logp_PG = logp_B.view(-1, case["group_size"])
    rest_P1 = torch.log1p(-logp_PG.exp().sum(-1, keepdim=True))
    logits = torch.cat([logp_PG, rest_P1], dim=-1).requires_grad_()
    before_B = logits.log_softmax(-1)[:, :-1].flatten()
    close(before_B.detach(), logp_B.tolist())
    (coefficients(before_B, *others, **options, gradient=gradient) * before_B).sum().backward()
    after_B = (logits - 1e-3 * logits.grad).log_softmax(-1)[:, :-1].flatten()
    moved_B = (after_B - before_B).detach() * direction
    assert all(moved_B[k] > 0 for k in listed), moved_B
