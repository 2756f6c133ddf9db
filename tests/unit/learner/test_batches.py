import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacs.testing import make_labeled_group
from services.learner.batches import make_batch, pad
from services.learner.plans import padded_length, plan_micro_batches

LENGTHS = st.lists(st.integers(1, 90), min_size=1, max_size=30)


def test_a_batch_lays_groups_end_to_end():
    groups = [make_labeled_group(0, (1, 0)), make_labeled_group(1, (-1, 1))]
    batch = make_batch(groups)
    assert batch.group_size == 2
    assert [ids.tolist() for ids in batch.token_ids_B] == [
        [11, 12, 13, 21],
        [11, 12, 13, 22, 22],
        [11, 12, 13, 21],
        [11, 12, 13, 22, 22],
    ]
    assert batch.prompt_tokens_B.tolist() == [3, 3, 3, 3]
    assert batch.tokens_B.tolist() == [4, 5, 4, 5]
    assert batch.response_tokens_B.tolist() == [1, 2, 1, 2]
    assert batch.label_B.tolist() == [1, 0, 0, 1]
    assert batch.valid_B.tolist() == [True, True, False, True]
    assert batch.truncated_B.tolist() == [False] * 4
    assert [p.tolist() for p in batch.engine_logprobs_B] == [[-0.5], [-0.5, -1.0]] * 2


def test_labels_follow_their_completions_whatever_the_order_of_the_verdicts():
    group = make_labeled_group(0, (0, 1, -1))
    shuffled = type(group)(group.group, dict(reversed(group.verdicts.items())))
    assert make_batch([shuffled]).label_B.tolist() == [0, 1, 0]
    assert make_batch([shuffled]).valid_B.tolist() == [True, True, False]


def test_groups_of_different_sizes_are_refused():
    with pytest.raises(ValueError, match=r"sizes \[2, 3\] in 2 groups"):
        make_batch([make_labeled_group(0, (1, 0)), make_labeled_group(1, (1, 0, 0))])
    with pytest.raises(ValueError, match="0 groups"):
        make_batch([])


@given(lengths=LENGTHS, budget=st.integers(1, 480), data=st.data())
def test_every_row_is_in_one_micro_batch_within_the_budget(lengths, budget, data):
    tokens_B = np.array(lengths)
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(lengths))), unique=True)), dtype=np.int64)
    plan = plan_micro_batches(tokens_B, rows, budget)
    assert sorted(row for part in plan for row in part) == sorted(rows)
    for part in plan:
        assert len(part) * padded_length(tokens_B[part]).max() <= budget or len(part) == 1
    longest = [padded_length(tokens_B[part]).max() for part in plan]
    assert longest == sorted(longest, reverse=True), "rows of like length go together"


def padded_tokens(tokens_B, plan):
    return sum(len(part) * int(padded_length(tokens_B[part]).max()) for part in plan)


@given(lengths=st.lists(st.integers(1, 90), min_size=1, max_size=7), budget=st.integers(1, 480))
def test_no_other_way_to_cut_the_sorted_rows_costs_less(lengths, budget):
    tokens_B = np.array(lengths)
    ordered = np.argsort(-tokens_B, kind="stable")

    def cost(plan):
        if any(len(part) > 1 and padded_tokens(tokens_B, [part]) > budget for part in plan):
            return math.inf
        return padded_tokens(tokens_B, plan) + len(plan) * budget / 32

    cuts = itertools.chain.from_iterable(itertools.combinations(range(1, len(ordered)), n) for n in range(len(ordered)))
    best = min(cost(np.split(ordered, cut)) for cut in cuts)
    assert cost(plan_micro_batches(tokens_B, np.arange(len(ordered)), budget)) == pytest.approx(best)


def test_padding_is_worth_more_passes_but_not_many():
    tokens_B = np.array([400, 20, 20, 20, 380, 20])
    plan = plan_micro_batches(tokens_B, np.arange(6), 3200)
    assert [part.tolist() for part in plan] == [[0, 4], [1, 2, 3, 5]], "all would fit into one, with 1600 tokens wasted"
    assert len(plan_micro_batches(np.arange(91, 101), np.arange(10), 3200)) == 1


@given(
    prompts=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    responses=st.lists(st.lists(st.integers(1, 60), min_size=0, max_size=6), min_size=1, max_size=6),
    data=st.data(),
)
def test_padding_keeps_every_token_and_predicts_every_response_token_from_the_one_before(prompts, responses, data):
    groups = [
        make_labeled_group(n, (1,), responses=[r], token_ids=np.arange(p, dtype=np.int32) + 70)
        for n, (p, r) in enumerate(zip(prompts, responses, strict=False))
    ]
    batch = make_batch(groups)
    rows = np.array(data.draw(st.permutations(range(len(groups)))), dtype=np.int64)
    micro = pad(batch, rows, pad_token_id=99)
    rows_and_width = micro.input_ids_bL.shape
    assert rows_and_width == (len(rows), padded_length(batch.tokens_B).max())
    assert rows_and_width[1] % 16 == 0
    assert 0 <= rows_and_width[1] - batch.tokens_B.max() < 16
    assert len(micro.row_N) == batch.response_tokens_B.sum()
    for b, row in enumerate(rows):
        length, prompt = batch.tokens_B[row], batch.prompt_tokens_B[row]
        assert micro.input_ids_bL[b, :length].tolist() == batch.token_ids_B[row].tolist()
        assert (micro.input_ids_bL[b, length:] == 99).all()
        mine = micro.row_N == b
        assert micro.column_N[mine].tolist() == list(range(prompt - 1, length - 1))
        assert micro.target_N[mine].tolist() == batch.token_ids_B[row][prompt:].tolist()


@given(lengths=st.lists(st.integers(0, 4), min_size=2, max_size=6), data=st.data())
def test_places_find_the_response_tokens_of_any_rows_in_any_order(lengths, data):
    batch = make_batch([make_labeled_group(n, (1,), responses=[[1] * length]) for n, length in enumerate(lengths)])
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(lengths))), unique=True)), dtype=np.int64)
    row_N = np.repeat(np.arange(len(lengths)), lengths)
    places = batch.places(rows)
    assert row_N[places].tolist() == [row for row in rows for _ in range(lengths[row])]
    assert len(set(places.tolist())) == len(places)


def test_what_was_cut_at_the_limit_is_known():
    groups = [make_labeled_group(0, (1, 0)), make_labeled_group(1, (1, 0), finish_reason="length")]
    assert make_batch(groups).truncated_B.tolist() == [False, False, True, True]
