"""Generalised advantages and the clipped value loss, against hand-computed figures."""

import math

import pytest
import torch  # noqa: TID253
from hypothesis import given
from hypothesis import strategies as st

from pacs.algo import clipped_value_loss, explained_variance, gae, whiten

F64 = torch.float64


def test_advantages_by_hand():
    """γ = 0.9, λ = 0.5: δ = (0.9·0.4 − 0.5, 0.9·0.8 − 0.4, 1 − 0.8), each plus 0.45 times the next advantage."""
    reward_BT = torch.tensor([[0.0, 0.0, 1.0], [0.0, 1.0, math.nan]], dtype=F64)
    value_BT = torch.tensor([[0.5, 0.4, 0.8], [0.2, 0.6, math.nan]], dtype=F64)
    mask_BT = torch.tensor([[1, 1, 1], [1, 1, 0]])
    out = gae(reward_BT, value_BT, mask_BT, discount=0.9, trace_decay=0.5)
    last = 1 - 0.8
    middle = 0.9 * 0.8 - 0.4 + 0.45 * last
    first = 0.9 * 0.4 - 0.5 + 0.45 * middle
    assert out.advantage_BT[0].tolist() == pytest.approx([first, middle, last])
    short = 1 - 0.6
    assert out.advantage_BT[1].tolist() == pytest.approx([0.9 * 0.6 - 0.2 + 0.45 * short, short, 0.0])
    assert out.return_BT[0].tolist() == pytest.approx([first + 0.5, middle + 0.4, 1.0])
    assert out.return_BT[1, 2].item() == 0.0


@given(st.lists(st.floats(-5, 5), min_size=4, max_size=4), st.floats(-3, 3))
def test_without_decay_the_advantage_is_the_reward_to_come_minus_the_value(values, reward):
    value_BT = torch.tensor([values], dtype=F64)
    reward_BT = torch.tensor([[0.0, 0.0, 0.0, reward]], dtype=F64)
    out = gae(reward_BT, value_BT, torch.ones(1, 4), discount=1.0, trace_decay=1.0)
    assert torch.allclose(out.advantage_BT, reward - value_BT, rtol=0, atol=1e-12)
    assert torch.allclose(out.return_BT, torch.full((1, 4), reward, dtype=F64), rtol=0, atol=1e-12)


def test_without_traces_the_advantage_is_one_step_ahead():
    value_BT = torch.tensor([[0.5, 0.25]], dtype=F64)
    out = gae(torch.tensor([[0.0, 1.0]], dtype=F64), value_BT, torch.ones(1, 2), discount=1.0, trace_decay=0.0)
    assert out.advantage_BT[0].tolist() == [-0.25, 0.75]


def test_value_loss_by_hand():
    """Moved too far towards the return: no more pull. Too far away from it, or near the old value: pull."""
    value_N = torch.tensor([0.9, -0.4, 0.1], dtype=F64, requires_grad=True)
    return_N = torch.tensor([1.0, 1.0, 1.0], dtype=F64)
    loss = clipped_value_loss(value_N, torch.zeros(3, dtype=F64), return_N, clip=0.2, tokens=3)
    loss.backward()
    assert loss.item() == pytest.approx((0.8**2 + 1.4**2 + 0.9**2) / 6)
    assert value_N.grad.tolist() == pytest.approx([0.0, -1.4 / 3, -0.9 / 3])


@pytest.mark.parametrize(
    ("options", "message"),
    [({"discount": 1.1, "trace_decay": 1.0}, "must lie in"), ({"discount": 1.0, "trace_decay": -0.1}, "must lie in")],
)
def test_factors_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        gae(torch.ones(1, 2), torch.ones(1, 2), torch.ones(1, 2), **options)


def test_shapes_and_counts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="one shape"):
        gae(torch.ones(1, 2), torch.ones(1, 3), torch.ones(1, 2), discount=1.0, trace_decay=1.0)
    with pytest.raises(ValueError, match="one shape"):
        clipped_value_loss(torch.ones(2), torch.ones(3), torch.ones(2), clip=0.2, tokens=2)
    with pytest.raises(ValueError, match="must be positive"):
        clipped_value_loss(torch.ones(2), torch.ones(2), torch.ones(2), clip=0.0, tokens=2)


def test_whitened_by_hand():
    """Mean 2, unbiased variance (1 + 0 + 1) / 2."""
    got = whiten(torch.tensor([1.0, 2.0, 3.0, math.nan], dtype=F64))
    assert got[:3].tolist() == pytest.approx([-1.0, 0.0, 1.0])
    assert got[3].isnan()


@pytest.mark.parametrize("advantages", [[], [0.7], [0.3] * 7])
def test_where_all_are_equal_nothing_is_left(advantages):
    assert whiten(torch.tensor(advantages, dtype=F64)).tolist() == pytest.approx([0.0] * len(advantages), abs=1e-9)


def test_explained_variance_by_hand():
    return_N = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=F64)
    assert explained_variance(return_N - 5, return_N) == pytest.approx(1.0)
    assert explained_variance(torch.full((4,), 9.0, dtype=F64), return_N) == pytest.approx(0.0)
    assert explained_variance(-return_N, return_N) == pytest.approx(1 - 4)
    assert explained_variance(return_N, torch.ones(4, dtype=F64)) is None
    assert explained_variance(return_N[:1], return_N[:1]) is None
    assert explained_variance(return_N, return_N * math.nan) is None
