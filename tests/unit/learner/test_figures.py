import numpy as np
import pytest

from pacs.testing import make_config, make_labeled_group
from pacs.wire.groups import VersionSpan
from services.learner.batches import make_batch
from services.learner.engine import SequenceLogprobs
from services.learner.figures import batch_figures, drift_figures, gap_to_engine, mean_entropy, score_figures
from services.learner.objective import make_objective
from services.learner.step_signal import Signal


def figures(*groups):
    return batch_figures(groups, make_batch(groups))


def score(*groups, scores, **settings):
    batch = make_batch(groups)
    selection = make_objective(make_config(settings)).select(batch)
    signals = [Signal(0.0, np.zeros(0), part, np.ones(len(part))) for part in scores]
    return score_figures(signals, selection, batch.response_tokens_B)


def test_accuracy_is_over_judged_samples():
    got = figures(make_labeled_group(0, (1, -1)), make_labeled_group(1, (0, 1)))
    assert got["accuracy"] == pytest.approx(2 / 3)
    assert got["invalid_share"] == 0.25
    assert figures(make_labeled_group(0, (-1, -1)))["accuracy"] is None


def test_groups_are_counted_by_their_labels():
    groups = [make_labeled_group(n, labels) for n, labels in enumerate([(1, 1), (0, 0), (1, 0), (1, -1), (-1, -1)])]
    got = figures(*groups)
    assert got["groups"] == {"all_pass": 2, "all_fail": 1, "mixed": 1}
    assert got["uniform_share"] == 0.75, "three of the four that anybody judged"


def test_lengths_and_truncation():
    groups = [
        make_labeled_group(0, (1, 0), policy_version=3, finish_reason="length"),
        make_labeled_group(1, (1, 0), responses=[[1] * 5, [1]], policy_version=5),
    ]
    got = figures(*groups)
    assert (got["tokens"], got["response_tokens_mean"], got["response_tokens_max"]) == (9, 2.25, 5)
    assert got["truncated_share"] == 0.5


def test_the_gap_is_taken_over_tokens_of_the_very_version_only():
    group = make_labeled_group(0, (1, 0), responses=[[1, 2, 3], [4, 5]], policy_version=2)
    first, second = group.group.completions
    object.__setattr__(first, "versions", (VersionSpan(1, 0, 1), VersionSpan(2, 1, 3)))
    object.__setattr__(second, "versions", (VersionSpan(1, 0, 2),))
    tokens = first.logprobs + np.float32([9.0, 0.25, 0.0]), second.logprobs + 7
    learner = [(np.array([n]), SequenceLogprobs((of_row,), 1.0)) for n, of_row in enumerate(tokens)]
    assert gap_to_engine([group], learner, 2) == pytest.approx(0.25)
    assert gap_to_engine([group], learner, 1) == pytest.approx(9.0)
    assert gap_to_engine([group], learner, 3) is None, "older weights are meant to differ"
    assert gap_to_engine([group], learner[1:], 2) is None, "no pass was needed for the first row"


def test_scores_as_a_classifiers():
    groups = make_labeled_group(0, (1, 0)), make_labeled_group(1, (1, -1))
    got = score(*groups, scores=[np.array([2.0, -1.0]), np.array([4.0, 99.0])])
    assert (got["score_correct_mean"], got["score_wrong_mean"], got["auc"]) == (3.0, -1.0, 1.0)
    assert got["brier"] == pytest.approx(
        np.mean([(1 / (1 + np.exp(-2)) - 1) ** 2, (1 / (1 + np.exp(1))) ** 2, (1 / (1 + np.exp(-4)) - 1) ** 2]),
        rel=1e-5,
    )


def test_a_batch_without_judged_samples_has_no_scores():
    assert score(make_labeled_group(0, (-1, -1)), scores=[np.zeros(2)]) == {}


def test_an_objective_that_is_no_classifier_has_no_scores():
    assert score(make_labeled_group(0, (1, 0)), scores=[]) == {}


def test_the_classifier_is_graded_on_what_it_was_trained_on():
    groups = make_labeled_group(0, (1, 0)), make_labeled_group(1, (1, 0), finish_reason="length")
    scores = [np.array([2.0, -2.0, 50.0, -50.0])]
    assert score(*groups, scores=scores)["score_correct_mean"] == 26.0
    dropped = score(*groups, scores=scores, **{"algorithm.truncated": "dropped"})
    assert (dropped["score_correct_mean"], dropped["score_abs_max"]) == (2.0, 2.0)
    wrong = score(*groups, scores=scores, **{"algorithm.truncated": "wrong"})
    assert (wrong["score_correct_mean"], wrong["score_wrong_mean"]) == (2.0, pytest.approx(-2 / 3))


def test_a_batch_of_one_label_has_no_curve():
    got = score(make_labeled_group(0, (1, 1)), scores=[np.zeros(2)])
    assert got["score_wrong_mean"] is None
    assert got["auc"] is None


def test_the_class_weights_range_is_that_of_the_samples_that_count():
    group = make_labeled_group(0, (1, 0, 0, -1))
    batch = make_batch([group])
    selection = make_objective(make_config()).select(batch)
    signal = Signal(0.0, np.zeros(0), np.zeros(4), np.array([1.5, 0.75, 0.75, 0.0]))
    got = score_figures([signal], selection, batch.response_tokens_B)
    assert (got["class_weight_min"], got["class_weight_max"]) == (0.75, 1.5)


def test_drift_is_per_token_over_samples_that_count():
    batch = make_batch([make_labeled_group(0, (1, 0, -1), responses=[[1, 2], [1] * 4, [1]])])
    selection = make_objective(make_config()).select(batch)
    got = drift_figures([np.array([1.0, -1.0, 50.0])], selection, batch.response_tokens_B)
    assert got["drift"] == pytest.approx((0.5 + 0.25) / 2)


def test_entropy_is_weighted_by_tokens_and_unknown_where_no_pass_was_made():
    parts = [(np.arange(1), SequenceLogprobs((np.zeros(3, dtype=np.float32),), 1.0))]
    parts += [(np.arange(1), SequenceLogprobs((np.zeros(1, dtype=np.float32),), 5.0))]
    assert mean_entropy(parts) == 2.0
    assert mean_entropy([]) is None
