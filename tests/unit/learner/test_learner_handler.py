import json

import numpy as np
import pytest

from pacs.errors import ServiceFailed
from pacs.testing import make_config, make_labeled_group
from services.learner.handler import LearnerHandler
from services.learner.testing import FakeTrainingEngine

GOOD, BAD = 21, 22  # the tokens of the first and the second response of every group


def groups(*labels, first=0):
    return [
        make_labeled_group(first + n, pair, responses=[[GOOD], [BAD]], policy_version=1)
        for n, pair in enumerate(labels)
    ]


def make_handler(engine=None, **overrides):
    engine = engine or FakeTrainingEngine()
    settings = {"run.groups_per_step": 4, **{f"learner.{k}": v for k, v in overrides.items()}}
    return LearnerHandler(make_config(settings), engine), engine


def test_what_was_correct_becomes_likelier():
    handler, engine = make_handler()
    losses = []
    for _ in range(20):
        handler.train(groups((1, 0), (1, 0)), policy_version=1)
        losses.append(engine.logits[GOOD] - engine.logits[BAD])
    assert losses == sorted(losses)
    assert losses[-1] > 1


def test_one_step_a_batch_unless_told_otherwise():
    handler, engine = make_handler()
    handler.train(groups((1, 0), (0, 1), (1, 0), (1, 1)), 1)
    assert engine.calls == ["logprobs 8", "backward [0, 1, 2, 3, 4, 5]", "step"], "the uniform group needs no pass"


def test_minibatches_are_whole_groups_and_later_ones_see_the_moved_policy():
    handler, engine = make_handler(minibatch_groups=2)
    figures = handler.train(groups((1, 0), (1, 0), (1, 0), (1, 0)), 1)
    assert engine.calls == [
        "logprobs 8",
        "backward [0, 1, 2, 3]",
        "step",
        "logprobs 4",
        "backward [4, 5, 6, 7]",
        "step",
    ]
    assert figures["score_correct_mean"] > 0, "ψ of the second half, against the policy the batch began with"
    assert figures["skipped"] is False


@pytest.mark.parametrize("labels", [(1, 1), (0, 0), (-1, -1)])
def test_a_batch_that_teaches_nothing_moves_nothing_and_is_no_fault(labels):
    handler, engine = make_handler(max_nonfinite_steps=1)
    figures = handler.train(groups(*[labels] * 4), 1)
    assert engine.calls == ["logprobs 8", "step"]
    assert not engine.logits.any()
    assert (figures["skipped"], figures["grad_norm"]) == (False, 0.0)
    json.dumps(figures, allow_nan=False)


def test_figures_are_plain_numbers():
    figures = make_handler()[0].train(groups((1, 0), (0, -1), (1, 1), (0, 0)), 3)
    again = json.loads(json.dumps(figures, allow_nan=False))
    assert again["accuracy"] == pytest.approx(3 / 7)
    assert again["staleness_max"] == 2
    assert again["logprob_gap_max"] is None
    assert set(again["seconds"]) == {"logprobs", "update"}
    assert again["learning_rate"] == 0.5
    assert again["entropy"] == pytest.approx(np.log(64))


def test_the_gap_to_the_engine_is_that_of_the_batch_as_it_was_sampled():
    figures = make_handler()[0].train(groups((1, 0)), policy_version=1)
    assert figures["logprob_gap_max"] == pytest.approx(abs(-0.5 + np.log(64)), rel=1e-5)


def test_a_gradient_that_is_not_finite_is_skipped_and_counted():
    handler, engine = make_handler(max_nonfinite_steps=3)
    engine.poison_gradient = True
    figures = handler.train(groups((1, 0)), 1)
    assert figures["skipped"] is True
    assert engine.calls[-1] == "skip"
    assert not engine.logits.any()
    engine.poison_gradient = False
    assert handler.train(groups((1, 0)), 1)["skipped"] is False
    assert np.isfinite(engine.logits).all()


def test_logprobs_that_are_not_finite_never_reach_the_gradient():
    handler, engine = make_handler(max_nonfinite_steps=3)
    engine.poison_rows = (1,)
    figures = handler.train(groups((1, 0), (1, 0)), 1)
    assert figures["skipped"] is True
    assert "score_abs_max" in figures, "of the group that is sound"
    assert engine.calls == ["logprobs 4", "discard"]
    assert not engine.logits.any()


def test_one_bad_minibatch_does_not_spoil_the_others():
    handler, engine = make_handler(minibatch_groups=2)
    engine.poison_rows = (0,)
    figures = handler.train(groups((1, 0), (1, 0), (1, 0), (1, 0)), 1)
    assert engine.calls == ["logprobs 8", "discard", "backward [4, 5, 6, 7]", "step"]
    assert figures["skipped"] is False
    assert np.isfinite(engine.logits).all()


def test_too_many_in_a_row_stop_the_run_and_name_the_groups():
    handler, engine = make_handler(max_nonfinite_steps=2)
    engine.poison_gradient = True
    handler.train(groups((1, 0), first=0), 1)
    with pytest.raises(ServiceFailed, match=r"2 optimizer steps in a row.*last groups: \[7, 8\].*learning_rate"):
        handler.train(groups((1, 0), (1, 0), first=7), 1)


def test_a_sound_step_in_between_starts_the_count_anew():
    handler, engine = make_handler(max_nonfinite_steps=2)
    for poisoned in (True, False, True, False, True):
        engine.poison_gradient = poisoned
        handler.train(groups((1, 0)), 1)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "reinforce"])
def test_baselines_train_through_the_same_steps(name):
    settings = {"run.groups_per_step": 2, "algorithm.name": name}
    engine = FakeTrainingEngine()
    handler = LearnerHandler(make_config(settings), engine)
    figures = handler.train(groups((1, 0), (0, 1), (1, 1), (-1, -1)), 1)
    json.dumps(figures, allow_nan=False)
    assert "calibration_error" not in figures, "there is no classifier to grade"
    assert figures["trained_completions"] == 6
    for _ in range(20):
        handler.train(groups((1, 0), (1, 0)), policy_version=1)
    assert engine.logits[GOOD] > engine.logits[BAD]
