import pytest

from pacs.testing import make_labeled_group
from pacs.wire.groups import VersionSpan
from services.learner.staleness import staleness

STEPS = {4: 3, 5: 4, 6: 4, 7: 5}  # version 6 is version 5's weights, published again


def group(*versions, responses=((1, 2), (1, 2))):
    found = make_labeled_group(0, (1, 0), responses=[list(r) for r in responses], policy_version=4).group
    for completion, of_completion in zip(found.completions, versions, strict=False):
        spans = tuple(VersionSpan(version, n, n + 1) for n, version in enumerate(of_completion))
        object.__setattr__(completion, "versions", spans)
    return found


@pytest.mark.parametrize(
    ("versions", "step", "expected"),
    [
        (((7, 7), (7, 7)), 5, 0),
        (((6, 7), (7, 7)), 5, 1),
        (((5, 7), (4, 7)), 5, 2),
        (((5, 5), (6, 6)), 4, 0),
        (((7, 7), (7, 7)), 4, 1),
        (((2, 7), (7, 7)), 5, 5),
    ],
    ids=["fresh", "one token older", "the oldest counts", "the same weights again", "lost weights", "long forgotten"],
)
def test_age_is_in_batches(versions, step, expected):
    assert staleness(group(*versions), step, STEPS) == expected


def test_a_group_without_tokens_is_as_old_as_its_prompt():
    empty = group(responses=((), ()))
    assert staleness(empty, 5, STEPS) == 2
