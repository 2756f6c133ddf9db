import json

import pytest

from pacs.local.summary import (
    evaluations_of,
    examples_before_after,
    first_and_last_evaluation,
    number,
    publications_of,
    steps_of,
    summarise,
    transitions,
    write_json_atomically,
)

START = 1_000.0
LEDGER = {"admitted": 12, "trained": 9, "dropped": {"too_long": 2}, "in_flight": 1}


def step(number_of_step, time, **figures):
    return {"kind": "step", "step": number_of_step, "time": time, "policy_version": number_of_step, **figures}


def evaluation(at_step, accuracy, labels=None, **figures):
    samples = [
        {"prompt_id": name, "prompt": f"{name}?", "answer": "4", "text": f"at {at_step}", "label": label}
        for name, label in (labels or {}).items()
    ]
    return {"kind": "evaluation", "step": at_step, "time": START, "accuracy": accuracy, "samples": samples, **figures}


def publication(version, gap):
    return {"kind": "publication", "step": version, "policy_version": version, "time": START, "max_logprob_gap": gap}


def test_a_whole_run_is_summarised():
    history = [
        evaluation(0, 0.25, problems=40, temperature=0.0),
        publication(1, 0.002),
        step(1, START + 30, seconds={"wait": 12.0, "update": 3.0, "logprobs": 1.0}),
        publication(2, 0.004),
        step(2, START + 40, skipped=True),
        publication(3, 0.001),
        evaluation(2, 0.5, problems=40, temperature=0.0),
    ]

    summary = summarise(history, LEDGER, started_at=START, tokens_generated=1234)

    assert summary == {
        "accuracy_before": 0.25,
        "accuracy_after": 0.5,
        "heldout_problems": 40,
        "evaluation_temperature": 0.0,
        "steps": 2,
        "steps_skipped": 1,
        "seconds_setup_to_first_step": 26.0,
        "seconds_training": 14.0,
        "tokens_generated": 1234,
        "ledger": LEDGER,
        "publications": 3,
        "max_logprob_gap": 0.004,
    }


def test_nothing_measured_is_null_and_not_zero():
    summary = summarise([], None, started_at=START)

    counts = {"steps": 0, "steps_skipped": 0, "publications": 0}
    assert {name: value for name, value in summary.items() if value is not None} == counts


@pytest.mark.parametrize(("at_step", "before", "after"), [(0, 0.25, None), (10, None, 0.25)])
def test_one_evaluation_is_never_both_before_and_after(at_step, before, after):
    summary = summarise([evaluation(at_step, 0.25, problems=8)], LEDGER, started_at=START)

    assert (summary["accuracy_before"], summary["accuracy_after"]) == (before, after)
    assert summary["heldout_problems"] == 8


def test_a_measured_zero_stays_zero():
    summary = summarise([evaluation(0, 0.0), evaluation(4, 0.0)], LEDGER, started_at=START)

    assert (summary["accuracy_before"], summary["accuracy_after"]) == (0.0, 0.0)


def test_of_a_repeated_step_the_last_counts_and_what_was_rolled_back_is_gone():
    history = [
        *(step(n, START + n, accuracy=0.1) for n in (1, 2, 3, 4)),
        evaluation(0, 0.1),
        evaluation(4, 0.9),
        step(3, START + 50, accuracy=0.3),
        evaluation(3, 0.2),
    ]

    assert [(event["step"], event["accuracy"]) for event in steps_of(history)] == [(1, 0.1), (2, 0.1), (3, 0.3)]
    assert [(event["step"], event["accuracy"]) for event in evaluations_of(history)] == [(0, 0.1), (3, 0.2)]


def test_a_rolled_back_publication_was_live_and_counts():
    history = [publication(1, 0.001), publication(2, 0.5), step(1, START), step(1, START + 1), publication(2, 0.002)]

    assert len(publications_of(history)) == 3
    assert summarise(history, LEDGER, started_at=START)["max_logprob_gap"] == 0.5


def test_durations_are_those_of_this_start():
    history = [step(1, START - 500), step(2, START - 400), step(3, START + 60, seconds={"update": 10.0, "wait": None})]

    summary = summarise(history, LEDGER, started_at=START)

    assert (summary["seconds_setup_to_first_step"], summary["seconds_training"]) == (50.0, 10.0)
    assert summary["steps"] == 3


def test_a_given_begin_of_the_first_step_wins():
    history = [step(1, START + 60, seconds={"update": 10.0}), step(2, START + 80)]

    summary = summarise(history, LEDGER, started_at=START, first_step_at=START + 45)

    assert (summary["seconds_setup_to_first_step"], summary["seconds_training"]) == (45.0, 35.0)


def test_setup_is_never_negative_when_phases_add_up_to_more_than_the_time():
    summary = summarise([step(1, START + 5, seconds={"update": 10.0})], LEDGER, started_at=START)

    assert (summary["seconds_setup_to_first_step"], summary["seconds_training"]) == (0.0, 5.0)


@pytest.mark.parametrize("value", [None, "0.5", True, float("nan"), float("inf"), [1]])
def test_what_is_no_finite_number_is_none(value):
    assert number(value) is None
    assert summarise([publication(1, value)], None, started_at=START)["max_logprob_gap"] is None


def test_examples_put_what_was_learned_first_then_what_was_lost():
    before = evaluation(0, 0.4, {"kept": 1, "stuck": 0, "broken": -1, "lost": 1, "learned": 0, "also learned": 0})
    after = evaluation(9, 0.6, {"also learned": 1, "learned": 1, "lost": 0, "broken": 1, "stuck": 0, "kept": 1})

    examples = examples_before_after([before, after])

    order = ["learned", "also learned", "lost", "stuck", "kept", "broken"]
    assert [example.prompt_id for example in examples] == order
    assert (examples[0].before["text"], examples[0].after["text"]) == ("at 0", "at 9")
    assert transitions(examples) == {"learned": 2, "lost": 1, "right": 1, "wrong": 1}
    assert [example.prompt_id for example in examples_before_after([before, after], limit=1)] == ["learned"]


def test_no_examples_without_a_second_evaluation_or_a_common_problem():
    assert examples_before_after([evaluation(0, 0.4, {"a": 0})]) == []
    assert examples_before_after([evaluation(0, 0.4, {"a": 0}), evaluation(5, 0.4, {"b": 1})]) == []
    assert examples_before_after([evaluation(0, 0.4, samples=None), evaluation(5, 0.4, {"b": 1})]) == []


def test_first_and_last_evaluation_of_nothing():
    assert first_and_last_evaluation([step(1, START)]) == (None, None)


def test_json_replaces_the_file_whole(tmp_path):
    path = tmp_path / "summary.json"
    write_json_atomically(path, {"steps": 1})
    write_json_atomically(path, {"steps": 2, "accuracy_after": None})

    assert json.loads(path.read_text()) == {"steps": 2, "accuracy_after": None}
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "summary.json"
    write_json_atomically(path, {"steps": 1})

    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json_atomically(path, {"max_logprob_gap": float("nan")})

    assert json.loads(path.read_text()) == {"steps": 1}
    assert list(tmp_path.iterdir()) == [path]
