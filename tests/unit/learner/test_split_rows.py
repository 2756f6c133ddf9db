"""How a batch is shared out over ranks."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from services.learner.batches import placeholder
from services.learner.plans import split_rows

lengths = st.lists(st.integers(1, 500), min_size=0, max_size=60)


@given(lengths, st.integers(1, 8), st.randoms(use_true_random=False))
def test_every_row_goes_to_exactly_one_rank(tokens, ranks, random):
    rows = [row for row in range(len(tokens)) if random.random() < 0.8]
    shares = split_rows(np.array(tokens, dtype=np.int64), np.array(rows, dtype=np.int64), ranks)
    assert len(shares) == ranks
    assert sorted(itertools.chain.from_iterable(share.tolist() for share in shares)) == rows


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(1, 3))
@settings(max_examples=60)
def test_heaviest_rank_is_within_grahams_bound_of_the_best_split(tokens, ranks):
    shares = split_rows(np.array(tokens), np.arange(len(tokens)), ranks)
    heaviest = max(sum(tokens[row] for row in share) for share in shares)
    best = min(
        max(sum(t for t, rank in zip(tokens, owners, strict=True) if rank == r) for r in range(ranks))
        for owners in itertools.product(range(ranks), repeat=len(tokens))
    )
    assert heaviest <= best * (4 / 3 - 1 / (3 * ranks)) + 1e-9


def test_the_same_lengths_are_split_the_same_way():
    tokens = np.array([7, 7, 7, 7, 3, 3])
    shares = [share.tolist() for share in split_rows(tokens, np.arange(6), 3)]
    assert shares == [[0, 3], [1, 4], [2, 5]]


def test_one_rank_gets_the_rows_longest_first_as_micro_batches_take_them():
    (share,) = split_rows(np.array([2, 9, 4, 9]), np.array([3, 0, 1]), 1)
    assert share.tolist() == [3, 1, 0]


def test_a_placeholder_is_a_pass_over_no_row():
    micro_batch = placeholder(5)
    assert len(micro_batch.rows) == 0
    assert micro_batch.input_ids_bL.tolist() == [[5, 5]]
    assert micro_batch.target_N.tolist() == [5]
    assert micro_batch.input_ids_bL[micro_batch.row_N, micro_batch.column_N].shape == (1,)
