import pytest

from pacs.testing import make_config
from services.learner.resets import ResetSchedule


def schedule(reference, **reset):
    evaluation = {"evaluation.every_steps": 5} if reference == "stall" else {}
    settings = {"run.max_steps": 10, "algorithm.reference": reference, **evaluation}
    return ResetSchedule(make_config({**settings, **{f"reset.{key}": value for key, value in reset.items()}}))


def test_intervals_count_batches_and_the_last_one_needs_no_reset():
    interval = schedule("interval", every_steps=5)
    assert [step for step in range(1, 11) if interval.due(step, 0, {})] == [5]


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({"drift": 0.01, "saturated_share": 0.1}, ""),
        ({"drift": 0.021, "saturated_share": 0.1}, "drift 0.021 nats per token"),
        ({"drift": 0.01, "saturated_share": 0.5}, "50% of scores saturated"),
        ({"drift": None}, ""),
        ({}, ""),
    ],
)
def test_drift_is_seen_in_the_figures_of_the_batch(figures, said):
    assert schedule("drift").due(3, 0, figures) == said
    assert schedule("manual").due(3, 0, figures) == "", "nobody asked to look at it"


@pytest.mark.parametrize("reference", ["manual", "drift", "stall"])
def test_a_request_is_for_one_epoch(reference):
    asked = schedule(reference)
    asked.request(2, "by hand")
    assert asked.due(3, 1, {}) == "by hand"
    assert asked.due(4, 2, {}) == "", "done"
    assert asked.due(10, 1, {}) == "", "after the last batch nothing follows it"


def test_a_reference_renewed_with_every_batch_has_no_resets():
    asked = schedule("batch")
    asked.request(1, "by hand")
    assert asked.due(3, 0, {"drift": 9.0}) == ""
