import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.learner.plans import divide, one_pass_costs_less, padded_length

SETTINGS = {"group_size": 4, "ranks": 1, "max_tokens": 1024, "recomputed": False, "passes_before": 1}


@given(
    groups=st.integers(1, 12),
    group_size=st.integers(1, 5),
    ranks=st.integers(1, 4),
    budget=st.integers(1, 600),
    data=st.data(),
)
def test_whole_groups_stay_together_within_the_budget(groups, group_size, ranks, budget, data):
    count = groups * group_size
    tokens_B = np.array(data.draw(st.lists(st.integers(1, 90), min_size=count, max_size=count)))
    chosen = data.draw(st.lists(st.sampled_from(range(groups)), unique=True, min_size=1))
    rows = np.arange(count).reshape(groups, group_size)[sorted(chosen)].ravel()
    plans = divide(tokens_B, rows, ranks=ranks, max_tokens=budget, group_size=group_size)
    assert len(plans) == ranks
    parts = [part for plan in plans for part in plan]
    assert sorted(row for part in parts for row in part) == rows.tolist()
    for part in parts:
        own = part.reshape(-1, group_size)
        assert (own == own[:, :1] // group_size * group_size + np.arange(group_size)).all(), "groups, in their order"
        assert len(part) * padded_length(tokens_B[part]).max() <= budget or len(own) == 1


def costs_less(tokens, teaching=None, **settings):
    rows = np.arange(len(tokens))
    return one_pass_costs_less(
        np.array(tokens), rows, rows if teaching is None else np.array(teaching, dtype=int), **{**SETTINGS, **settings}
    )


def test_groups_of_like_length_take_one_pass():
    assert costs_less([100, 101, 99, 100] * 4)


def test_one_long_response_a_group_makes_padding_dearer_than_a_pass():
    assert not costs_less([220, 20, 20, 20] * 4)


def test_a_group_that_does_not_fit_takes_two():
    assert costs_less([250] * 4)
    assert not costs_less([250] * 4, max_tokens=1023), "4 rows padded to 256"


@pytest.mark.parametrize(("settings", "longest"), [({}, 240), ({"recomputed": True}, 224), ({"passes_before": 0}, 256)])
def test_the_costs_are_those_of_padded_tokens_and_passes(settings, longest):
    """Four groups of a response of L tokens and three of 160, a pass counting as 200 tokens.

    Whole groups make one micro-batch, 16·L + 200; the others two, 4·L + 12·160 + 400. After one pass without gradient
    4 · (16·L + 200) < 5 · (4·L + 2320) where L < 245; with recomputation 5 and 6 times, L < 231; after none 3 and 4, L
    < 271.
    """
    for tokens in range(176, 321, 16):
        assert costs_less([tokens, 160, 160, 160] * 4, max_tokens=6400, **settings) is (tokens <= longest)


def test_rows_that_teach_nothing_are_left_out_of_the_second_pass_of_two():
    tokens = [100, 100, 100, 100] * 4
    assert costs_less(tokens)
    assert not costs_less(tokens, teaching=[0, 1, 2, 3]), "a pass over a quarter"
    assert not costs_less(tokens, teaching=[])


def test_the_rank_with_most_to_do_decides():
    tokens = [100] * 4
    assert costs_less(tokens)
    assert not costs_less(tokens, ranks=4), "one group is one rank's; its rows are everybody's"
