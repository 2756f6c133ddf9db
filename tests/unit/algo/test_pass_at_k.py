"""pass@k, avg@k and maj@k against combinatorics and hand-counted votes."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacs.algo import avg_at_k, maj_at_k, pass_at_k


@given(st.data())
def test_pass_at_k_equals_the_binomial_form(data):
    samples = data.draw(st.integers(1, 40))
    correct = data.draw(st.integers(0, samples))
    k = data.draw(st.integers(1, samples))
    expected = 1 - math.comb(samples - correct, k) / math.comb(samples, k)
    assert pass_at_k(samples, correct, k) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("samples", "correct", "k", "expected"),
    [(4, 1, 1, 0.25), (4, 1, 4, 1.0), (4, 0, 4, 0.0), (4, 2, 2, 5 / 6), (2000, 1, 1000, 0.5)],
)
def test_pass_at_k_by_hand(samples, correct, k, expected):
    assert pass_at_k(samples, correct, k) == pytest.approx(expected)


@pytest.mark.parametrize(("samples", "correct", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1)])
def test_pass_at_k_refuses_what_cannot_be_estimated(samples, correct, k):
    with pytest.raises(ValueError, match="must be"):
        pass_at_k(samples, correct, k)


def test_avg_at_k_is_of_exactly_k_samples():
    assert avg_at_k([True, False, True, True], 2) == 0.5
    with pytest.raises(ValueError, match="k=3 and 2 samples"):
        avg_at_k([True, False], 3)


@pytest.mark.parametrize(
    ("answers", "correct", "expected"),
    [
        (["7", "8", "7"], [True, False, True], 1.0),
        (["8", "8", "7"], [False, False, True], 0.0),
        (["7", "8"], [True, False], 0.5),
        ([None, None, "7"], [False, False, True], 1.0),
        ([None, None], [False, False], 0.0),
    ],
)
def test_maj_at_k_by_hand(answers, correct, expected):
    assert maj_at_k(answers, correct, len(answers)) == expected


def test_only_the_first_k_vote():
    assert maj_at_k(["7", "8", "8"], [True, False, False], 1) == 1.0


def test_maj_at_k_refuses_contradictions():
    with pytest.raises(ValueError, match="one verdict"):
        maj_at_k(["7", "7"], [True, False], 2)
    with pytest.raises(ValueError, match="every answer needs one verdict"):
        maj_at_k(["7"], [True, False], 1)
