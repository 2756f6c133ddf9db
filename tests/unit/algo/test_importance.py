"""Truncated importance weights by hand."""

import math

import pytest
import torch  # noqa: TID253

from pacs.algo import importance_weights


def test_weights_by_hand():
    old_N = torch.tensor([-1.0, -1.0, -1.0, -2.0], dtype=torch.float64, requires_grad=True)
    engine_N = torch.tensor([-1.0, -1.5, -4.0, -1.0], dtype=torch.float64)
    weight_N = importance_weights(old_N, engine_N, cap=2.0)
    assert weight_N.tolist() == pytest.approx([1.0, math.exp(0.5), 2.0, math.exp(-1.0)])
    assert not weight_N.requires_grad


def test_what_the_engine_held_impossible_gets_the_cap():
    assert importance_weights(torch.tensor([-1.0]), torch.tensor([-math.inf]), cap=3.0).tolist() == [3.0]


def test_a_correction_that_is_not_cut_makes_the_mean_right():
    """Two tokens, sampled with 0.75 and 0.25 instead of one half each: the weighted frequencies are the policy's."""
    engine = torch.tensor([0.75, 0.25], dtype=torch.float64)
    weight = importance_weights(torch.tensor([0.5, 0.5], dtype=torch.float64).log(), engine.log(), cap=10.0)
    assert (engine * weight).tolist() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(("engine", "cap"), [(torch.ones(3), 2.0), (torch.ones(2), 0.0)])
def test_broken_input_is_refused(engine, cap):
    with pytest.raises(ValueError, match="one shape and cap must be positive"):
        importance_weights(torch.ones(2), engine, cap=cap)
