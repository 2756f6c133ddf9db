"""Which completions count, and as what."""

import pytest
import torch  # noqa: TID253
from hypothesis import given
from hypothesis import strategies as st

from pacs.algo import select


def bools(*values):
    return torch.tensor(values, dtype=torch.bool)


LABEL_B = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 0.0])
VALID_B = bools(1, 1, 1, 1, 1, 0)
TRUNCATED_B = bools(0, 0, 1, 1, 0, 1)


def selected(truncated="as_labelled", uniform="keep", dropped_labels_count=True):
    return select(
        LABEL_B, VALID_B, TRUNCATED_B,
        group_size=3, truncated=truncated, uniform=uniform, dropped_labels_count=dropped_labels_count,
    )  # fmt: skip


def test_by_default_the_verifier_decides():
    selection = selected()
    assert torch.equal(selection.label_B, LABEL_B)
    assert torch.equal(selection.judged_B, VALID_B)
    assert torch.equal(selection.trained_B, VALID_B)


def test_truncated_as_wrong_changes_the_label_and_leaves_the_unjudged_out():
    selection = selected(truncated="wrong")
    assert selection.label_B.tolist() == [1, 1, 0, 0, 0, 0]
    assert torch.equal(selection.trained_B, VALID_B)


def test_truncated_dropped_leaves_the_loss_and_for_policy_gradients_not_the_baseline():
    selection = selected(truncated="dropped")
    assert selection.trained_B.tolist() == bools(1, 1, 0, 0, 1, 0).tolist()
    assert torch.equal(selection.judged_B, VALID_B)


def test_for_pacs_what_is_dropped_leaves_everything():
    selection = selected(truncated="dropped", dropped_labels_count=False)
    assert torch.equal(selection.judged_B, selection.trained_B)


def test_uniform_groups_are_dropped_whole_and_the_labels_that_count_decide():
    """The first group is mixed by its truncated completion only."""
    kept = selected(truncated="dropped", uniform="drop")
    assert kept.trained_B.tolist() == bools(1, 1, 0, 0, 1, 0).tolist()
    dropped = selected(truncated="dropped", uniform="drop", dropped_labels_count=False)
    assert dropped.trained_B.tolist() == [False] * 6
    wrong = selected(truncated="wrong", uniform="drop")
    assert wrong.trained_B.tolist() == bools(1, 1, 1, 0, 0, 0).tolist()


@given(
    st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.booleans()), min_size=6, max_size=6),
    st.sampled_from(["as_labelled", "wrong", "dropped"]),
    st.sampled_from(["keep", "drop"]),
    st.booleans(),
)
def test_what_is_trained_is_judged_and_what_is_judged_is_valid(samples, truncated, uniform, counts):
    label_B, valid_B, truncated_B = (torch.tensor(column) for column in zip(*samples, strict=True))
    out = select(
        label_B, valid_B, truncated_B,
        group_size=3, truncated=truncated, uniform=uniform, dropped_labels_count=counts,
    )  # fmt: skip
    assert not (out.trained_B & ~out.judged_B).any()
    assert not (out.judged_B & ~valid_B).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [({"group_size": 4}, "whole groups"), ({"truncated": "maybe"}, "truncated must be"), ({"uniform": "?"}, "uniform")],
)
def test_broken_input_is_refused(change, message):
    options = {"group_size": 3, "truncated": "wrong", "uniform": "keep", "dropped_labels_count": True, **change}
    with pytest.raises(ValueError, match=message):
        select(LABEL_B, VALID_B, TRUNCATED_B, **options)
