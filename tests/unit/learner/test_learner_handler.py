import json

import numpy as np
import pytest

from pacs.errors import ServiceFailed
from pacs.testing import make_config, make_labeled_group
from services.learner.batches import make_batch
from services.learner.handler import LearnerHandler
from services.learner.noise import noise_bound
from services.learner.testing import FakeTrainingEngine

GOOD, BAD = 21, 22  # the tokens of the first and the second response of every group


def groups(*labels, first=0):
    return [
        make_labeled_group(first + n, pair, responses=[[GOOD], [BAD]], policy_version=1)
        for n, pair in enumerate(labels)
    ]


NO_GROUP_FITS = 16  # padded tokens: those of one row


def make_handler(*, whole_groups_fit=False, **overrides):
    """A handler that has measured its noise floor: only the passes of training are in the log."""
    settings = {key if "." in key else f"learner.{key}": value for key, value in overrides.items()}
    if not whole_groups_fit:
        settings["learner.microbatch_tokens"] = NO_GROUP_FITS
    config, engine = make_config({"run.groups_per_step": 4, **settings}), FakeTrainingEngine()
    handler = LearnerHandler(config, engine)
    handler._noise.measured_once(make_batch(groups((1, 0))))
    engine.calls.clear()
    return handler, engine


def train(handler, batch, policy_version=1):
    return handler.train(batch, policy_version)


def test_what_was_correct_becomes_likelier():
    handler, engine = make_handler()
    losses = []
    for _ in range(20):
        train(handler, groups((1, 0), (1, 0)))
        losses.append(engine.logits[GOOD] - engine.logits[BAD])
    assert losses == sorted(losses)
    assert losses[-1] > 1


def test_one_step_a_batch_unless_told_otherwise():
    handler, engine = make_handler()
    train(handler, groups((1, 0), (0, 1), (1, 0), (1, 1)))
    assert engine.calls == ["backward [0, 1, 2, 3, 4, 5]", "step"], "one pass, and none for the uniform group"


def test_minibatches_are_whole_groups_and_later_ones_see_the_moved_policy():
    handler, engine = make_handler(minibatch_groups=2)
    figures = train(handler, groups((1, 0), (1, 0), (1, 0), (1, 0)))
    assert engine.calls == [
        "logprobs 4",
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
    figures = train(handler, groups(*[labels] * 4))
    assert engine.calls == ["step"]
    assert not engine.logits.any()
    assert (figures["skipped"], figures["grad_norm"]) == (False, 0.0)
    json.dumps(figures, allow_nan=False)


def test_figures_are_plain_numbers():
    figures = train(make_handler()[0], groups((1, 0), (0, -1), (1, 1), (0, 0)), policy_version=3)
    again = json.loads(json.dumps(figures, allow_nan=False))
    assert again["accuracy"] == pytest.approx(3 / 7)
    assert again["logprob_gap_max"] is None
    assert set(again["seconds"]) == {"logprobs", "update"}
    assert again["learning_rate"] == 0.5
    assert again["entropy"] == pytest.approx(np.log(64))


def test_the_gap_to_the_engine_is_that_of_the_batch_as_it_was_sampled():
    figures = train(make_handler()[0], groups((1, 0)))
    assert figures["logprob_gap_max"] == pytest.approx(abs(-0.5 + np.log(64)), rel=1e-5)


def test_a_gradient_that_is_not_finite_is_skipped_and_counted():
    handler, engine = make_handler(max_nonfinite_steps=3)
    engine.poison_gradient = True
    figures = train(handler, groups((1, 0)))
    assert figures["skipped"] is True
    assert engine.calls[-1] == "skip"
    assert not engine.logits.any()
    engine.poison_gradient = False
    assert train(handler, groups((1, 0)))["skipped"] is False
    assert np.isfinite(engine.logits).all()


def test_logprobs_that_are_not_finite_never_reach_the_weights():
    handler, engine = make_handler(max_nonfinite_steps=3)
    engine.poison_rows = (1,)
    figures = train(handler, groups((1, 0), (1, 0)))
    assert figures["skipped"] is True
    assert engine.calls == ["backward [0, 1, 2, 3]", "skip"]
    assert not engine.logits.any()


def test_one_bad_minibatch_does_not_spoil_the_others():
    handler, engine = make_handler(minibatch_groups=2)
    engine.poison_rows = (0,)
    figures = train(handler, groups((1, 0), (1, 0), (1, 0), (1, 0)))
    assert engine.calls == ["logprobs 4", "backward [0, 1, 2, 3]", "skip", "backward [4, 5, 6, 7]", "step"]
    assert (figures["skipped"], figures["skipped_steps"]) == (False, 1)
    assert figures["grad_norm"] > 0, "of the sound one"
    json.dumps(figures, allow_nan=False)
    assert np.isfinite(engine.logits).all()


def test_too_many_in_a_row_stop_the_run_and_name_the_groups():
    handler, engine = make_handler(max_nonfinite_steps=2)
    engine.poison_gradient = True
    train(handler, groups((1, 0), first=0))
    with pytest.raises(ServiceFailed, match=r"2 optimizer steps in a row.*last groups: \[7, 8\].*learning_rate"):
        train(handler, groups((1, 0), (1, 0), first=7))


def test_as_many_in_a_row_within_a_batch_stop_it_there_and_name_the_groups_of_the_last():
    handler, engine = make_handler(minibatch_groups=1, max_nonfinite_steps=2, **{"algorithm.log_ratio": "mean_logprob"})
    engine.poison_rows = (0, 3)
    with pytest.raises(ServiceFailed, match=r"2 optimizer steps in a row.*last groups: \[8\]"):
        train(handler, groups((1, 0), (1, 0), (1, 0), first=7))
    assert "step" not in engine.calls, "the third, which is sound, is not taken any more"


def test_figures_of_a_batch_without_a_sound_step_are_plain_too():
    handler, engine = make_handler(max_nonfinite_steps=3, **{"algorithm.log_ratio": "mean_logprob"})
    engine.poison_rows = (0, 1, 2, 3)
    figures = train(handler, groups((1, 0), (1, 0)))
    json.dumps(figures, allow_nan=False)
    assert [figures[name] for name in ("grad_norm", "learning_rate", "loss", "skipped_steps")] == [None, None, None, 1]


def test_a_sound_step_in_between_starts_the_count_anew():
    handler, engine = make_handler(max_nonfinite_steps=2)
    for poisoned in (True, False, True, False, True):
        engine.poison_gradient = poisoned
        train(handler, groups((1, 0)))


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "reinforce"])
def test_baselines_train_through_the_same_steps(name):
    handler, engine = make_handler(**{"algorithm.name": name})
    figures = train(handler, groups((1, 0), (0, 1), (1, 1), (-1, -1)))
    json.dumps(figures, allow_nan=False)
    assert "calibration_error" not in figures, "there is no classifier to grade"
    assert figures["trained_completions"] == 6
    for _ in range(20):
        train(handler, groups((1, 0), (1, 0)))
    assert engine.logits[GOOD] > engine.logits[BAD]


def test_coefficients_that_are_not_finite_never_reach_the_gradient():
    handler, engine = make_handler(max_nonfinite_steps=3, **{"algorithm.log_ratio": "mean_logprob"})
    engine.poison_rows = (1,)
    figures = train(handler, groups((1, 0), (1, 0)))
    assert figures["skipped"] is True
    assert "score_abs_max" in figures, "of the group that is sound"
    assert engine.calls == ["logprobs 4", "discard"]
    assert not engine.logits.any()


def test_a_snapshot_is_the_reference_until_it_is_taken_anew():
    handler, engine = make_handler(**{"algorithm.reference": "manual"})
    engine.take_reference()
    drifts = [train(handler, groups((1, 0), (1, 0)))["drift"] for _ in range(3)]
    assert engine.calls == [
        "take reference",
        *("backward [0, 1, 2, 3]", "step"),
        *("logprobs 4", "reference logprobs [4]", "backward [0, 1, 2, 3]", "step") * 2,
    ]
    assert drifts[0] == 0 < drifts[1] < drifts[2]
    engine.take_reference()
    assert train(handler, groups((1, 0), (1, 0)))["drift"] == 0


def test_against_a_snapshot_every_minibatch_is_scored_under_both_policies_in_one_packing():
    handler, engine = make_handler(minibatch_groups=2, **{"algorithm.reference": "manual"})
    engine.take_reference()
    engine.logits[GOOD], engine.at_reference = 0.1, False
    train(handler, groups((1, 0), (1, 0), (1, 0), (1, 0)))
    assert engine.calls[1:] == [
        "logprobs 4",
        "reference logprobs [4, 4]",
        *("backward [0, 1, 2, 3]", "step"),
        *("logprobs 4", "backward [4, 5, 6, 7]", "step"),
    ]


def test_whole_groups_take_one_pass_where_coefficients_depend_on_log_probs_and_that_is_cheaper():
    handler, engine = make_handler(whole_groups_fit=True, minibatch_groups=2, **{"algorithm.reference": "manual"})
    engine.take_reference()
    engine.logits[GOOD], engine.at_reference = 0.1, False
    figures = train(handler, groups((1, 0), (1, 0), (1, 0), (1, 0)))
    assert engine.calls[1:] == [
        "reference logprobs [4, 4] in groups [0, 1]",
        *("one pass [0, 1, 2, 3]", "step"),
        *("one pass [4, 5, 6, 7]", "step"),
    ]
    assert figures["one_pass_share"] == 1
    assert figures["entropy"] < np.log(64), "of the first step's pass: the policy had not moved"


def test_of_a_batch_with_its_own_reference_the_first_step_needs_labels_alone_and_the_later_ones_take_one_pass():
    handler, engine = make_handler(whole_groups_fit=True, minibatch_groups=2)
    figures = train(handler, groups((1, 0), (1, 0), (1, 0), (1, 0)))
    assert engine.calls == [
        "logprobs 4 in groups",
        *("backward [0, 1, 2, 3]", "step"),
        *("one pass [4, 5, 6, 7]", "step"),
    ]
    assert figures["one_pass_share"] == 0.5


VARIANTS = [
    {},
    {"algorithm.reference": "manual"},
    {"algorithm.reference": "manual", "algorithm.importance_cap": 1.5},
    {"algorithm.log_ratio": "mean_logprob", "algorithm.gradient": "full"},
    {"algorithm.importance_cap": 1.5},
    {"algorithm.name": "grpo"},
    {"algorithm.name": "dr_grpo"},
    {"algorithm.name": "rloo"},
    {"algorithm.name": "reinforce"},
]


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: " ".join(map(str, v.values())) or "pacs")
def test_one_pass_or_two_it_is_the_same_training(variant):
    ways = {}
    for whole_groups_fit in (True, False):
        handler, engine = make_handler(whole_groups_fit=whole_groups_fit, minibatch_groups=2, **variant)
        engine.take_reference()
        figures = [train(handler, groups((1, -1), (1, 1), (0, 1), (1, 0), first=4 * n)) for n in range(3)]
        passes = any("one pass" in call for call in engine.calls)
        ways[whole_groups_fit] = passes, engine.logits, figures
    (one_passed, one_logits, one_figures), (two_passed, two_logits, two_figures) = ways[True], ways[False]
    assert (one_passed, two_passed) == (True, False)
    assert one_logits == pytest.approx(two_logits, abs=1e-12)
    for one, two in zip(one_figures, two_figures, strict=True):
        apart = {"seconds", "one_pass_share", "entropy"}  # the entropy is over the rows that a pass needed
        assert one.keys() == two.keys()
        for name in one.keys() - apart:
            assert one[name] == pytest.approx(two[name], abs=1e-12), name


def test_in_one_pass_log_probs_that_are_not_finite_never_reach_the_weights():
    handler, engine = make_handler(
        whole_groups_fit=True, max_nonfinite_steps=3, **{"algorithm.log_ratio": "mean_logprob"}
    )
    engine.poison_rows = (1,)
    figures = train(handler, groups((1, 0), (1, 0)))
    assert figures["skipped"] is True
    assert engine.calls == ["one pass [0, 1, 2, 3]", "discard"]
    assert not engine.logits.any()


def test_a_pass_that_taught_nothing_moves_nothing():
    handler, engine = make_handler(whole_groups_fit=True, **{"algorithm.log_ratio": "mean_logprob"})
    figures = train(handler, groups((1, 1), (0, 0)))
    assert engine.calls == ["one pass [0, 1, 2, 3]", "discard", "step"]
    assert (figures["skipped"], figures["grad_norm"]) == (False, 0.0)


def test_ppo_always_takes_two():
    handler, engine = make_handler(whole_groups_fit=True, minibatch_groups=1, **{"algorithm.name": "ppo"})
    figures = train(handler, groups((1, 0), (0, 1)))
    assert figures["one_pass_share"] == 0
    assert not any("group" in call or "one pass" in call for call in engine.calls)


def test_the_classifiers_feedback_fades_against_a_snapshot_and_not_against_each_batch():
    pulls = {}
    for reference in ("batch", "manual"):
        handler, engine = make_handler(**{"algorithm.reference": reference})
        engine.take_reference()
        pulls[reference] = [train(handler, groups((1, 0)))["grad_norm"] for _ in range(8)]
    assert pulls["manual"][-1] < 0.7 * pulls["batch"][-1]


def test_the_noise_floor_is_measured_once_and_what_is_above_the_bound_is_said(caplog):
    class Noisy(FakeTrainingEngine):
        def logprobs(self, batch, rows, *, whole_groups=False):
            found = super().logprobs(batch, rows, whole_groups=whole_groups)
            found.tokens_B[0][0] += 0.5 / len(rows)  # packing decides over rounding
            return found

    engine = Noisy()
    handler = LearnerHandler(make_config({"run.groups_per_step": 2}), engine)
    figures = [train(handler, groups((1, 0), (1, 0)))["noise_floor"] for _ in range(2)]
    assert engine.calls.count("logprobs 1") == 2
    assert figures == [pytest.approx(0.25, rel=1e-4)] * 2, "the first row's 1/4 less than its peer's 1/2"
    assert f"above the bound of {noise_bound('float32', 1):g}" in caplog.text


def test_an_exact_engine_has_no_noise(caplog):
    handler = LearnerHandler(make_config({"run.groups_per_step": 2}), FakeTrainingEngine())
    assert train(handler, groups((1, 0), (1, 0)))["noise_floor"] == 0
    assert "above" not in caplog.text


def test_what_rounding_may_do_to_a_score_grows_with_length_in_bfloat16():
    assert noise_bound("float32", 4096) == 1e-4
    assert noise_bound("bfloat16", 243) == pytest.approx(7.29), "2.3 were measured"


def test_ppo_trains_policy_and_values_in_one_backward_pass():
    handler, engine = make_handler(**{"algorithm.name": "ppo", "algorithm.value_coefficient": 1.0})
    losses, values = [], []
    for _ in range(20):
        figures = train(handler, groups((1, 0), (0, 1), (1, 0), (1, 0)))
        json.dumps(figures, allow_nan=False)
        losses.append(figures["value_loss"])
        values.append(engine.values[13])  # before either response, after the prompt's last token
    assert engine.calls[:3] == ["logprobs 8", "backward [0, 1, 2, 3, 4, 5, 6, 7]", "step"]
    assert engine.logits[GOOD] > engine.logits[BAD]
    assert losses == sorted(losses, reverse=True)
    assert values == pytest.approx([0.5 * (1 - 0.5 ** (n + 1)) for n in range(20)]), "halfway to the mean label a step"
    assert figures["explained_variance"] == pytest.approx(0.0), "a constant explains nothing"


def test_ppo_takes_the_values_of_the_batchs_start_in_all_its_steps():
    settings = {"algorithm.name": "ppo", "algorithm.value_coefficient": 1.0, "algorithm.value_clip": 0.0}
    handler, engine = make_handler(minibatch_groups=1, **settings)
    train(handler, groups((1, 1), (1, 1)))
    assert engine.calls == [
        *("logprobs 2", "logprobs 2", "backward [0, 1]", "step"),
        *("logprobs 2", "backward [2, 3]", "step"),
    ]
    assert engine.values[13] == pytest.approx(0.75), "half of the way to 1, twice: the second sees the moved value"
    assert not engine.logits.any(), "advantages of the start are all equal"


def test_values_that_are_not_finite_never_reach_the_gradient():
    handler, engine = make_handler(max_nonfinite_steps=3, **{"algorithm.name": "ppo"})
    engine.values[13] = np.nan
    assert train(handler, groups((1, 0)))["skipped"] is True
    assert engine.calls == ["logprobs 2", "discard"]
    assert not engine.logits.any()


def test_the_score_of_grpo_begins_with_the_direction_of_dr_grpo():
    gradients = {}
    for score in ("grpo", "dr_grpo"):
        handler, engine = make_handler(**{"algorithm.reference": "manual", "algorithm.score": score})
        engine.take_reference()
        train(handler, groups((1, 0), (0, 1)))
        gradients[score] = engine.logits / np.linalg.norm(engine.logits)
    assert gradients["grpo"] == pytest.approx(gradients["dr_grpo"])
