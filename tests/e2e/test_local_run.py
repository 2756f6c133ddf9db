"""The whole path of a group on this machine: Redis, Ray Serve × vLLM, verifier, DeepSpeed, verified broadcasts."""

import signal
import time

import pytest

from tests.e2e.conftest import balances

pytestmark = pytest.mark.e2e

STEPS = 4
GROUPS = 16
IN_TURN = ("run.max_staleness=0", f"run.max_steps={STEPS}", "evaluation.max_problems=40")


def prompts_by_step(run) -> dict[int, list[str]]:
    return {entry["step"]: entry["prompt_ids"] for entry in run.history("step")}


@pytest.fixture(scope="module")
def whole(new_run):
    """A run from beginning to end."""
    run = new_run("whole", *IN_TURN)
    run.start()
    assert run.wait(400) == 0, run.output
    return run


@pytest.fixture(scope="module")
def broken(new_run):
    """The same run, interrupted by Ctrl-C, then by the learner's sudden death, and continued each time."""
    run = new_run("broken", *IN_TURN, "learner.checkpoint_every_steps=1")
    run.start()
    run.wait_for_step(1)
    began = time.monotonic()
    run.signal(signal.SIGINT)
    run.interrupted_code, run.seconds_to_stop = run.wait(60), time.monotonic() - began
    run.left_after_interrupt, run.ledger_after_interrupt = run.processes(), run.ledger()
    run.start()
    run.wait_for_step(2)
    run.kill_service("learner")
    run.killed_code, run.ledger_after_kill = run.wait(60), run.ledger()
    run.left_after_kill = run.processes()
    run.start()
    assert run.wait(400) == 0, run.output
    return run


@pytest.fixture(scope="module")
def overlapping(new_run):
    """Rollout and learner at the same time: publications meet requests in flight."""
    run = new_run("overlapping", "run.max_staleness=1", "run.max_steps=5", "evaluation.max_problems=40")
    run.start()
    assert run.wait(400) == 0, run.output
    return run


def test_overlapping_run_is_as_exact(overlapping):
    ledger = overlapping.ledger()
    assert (ledger["trained"], ledger["in_flight"]) == (5 * GROUPS, 0)
    assert set(ledger["dropped"]) <= {"stale"}, "what was too old was sampled anew"
    assert balances(ledger)
    assert max(entry["max_logprob_gap"] for entry in overlapping.history("publication")) < 1e-4
    assert max(entry["staleness_max"] for entry in overlapping.history("step")) == 1


def test_summary_says_what_was_reached(whole):
    summary = whole.summary
    assert summary["state"] == "finished"
    assert summary["steps"] == STEPS
    assert summary["heldout_problems"] == 40
    assert 0 < summary["accuracy_before"] < 1
    assert summary["accuracy_after"] is not None
    assert summary["tokens_generated"] > 0
    assert summary["seconds_setup_to_first_step"] > 0
    assert summary["seconds_training"] > 0


def test_every_group_is_trained_once(whole):
    expected = {"admitted": STEPS * GROUPS, "trained": STEPS * GROUPS, "dropped": {}, "in_flight": 0}
    assert whole.ledger() == expected
    asked = [prompt for prompts in prompts_by_step(whole).values() for prompt in prompts]
    assert len(set(asked)) == STEPS * GROUPS


def test_engine_and_learner_agree_after_every_publication(whole):
    gaps = [entry["max_logprob_gap"] for entry in whole.history("publication")]
    assert len(gaps) == STEPS + 1
    assert max(gaps) < 1e-4
    assert whole.summary["max_logprob_gap"] == max(gaps)


def test_sampled_tokens_agree_with_the_learner_too(whole):
    """At max_staleness 0 every token came from the very weights the learner holds."""
    gaps = [entry["logprob_gap_max"] for entry in whole.history("step")]
    assert max(gaps) < 1e-4


def test_report_and_model_are_there(whole):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    for name in ("report.html", "report.png", "metrics.jsonl", "ledger.json"):
        assert (whole.path / name).stat().st_size > 0
    AutoTokenizer.from_pretrained(whole.path / "export")
    model = AutoModelForCausalLM.from_pretrained(whole.path / "export")
    assert sum(p.numel() for p in model.parameters()) == 821_120


def test_nothing_is_left_running(whole):
    assert whole.processes() == []


def test_interrupt_stops_everything_in_time(broken):
    assert broken.interrupted_code == 130
    assert broken.seconds_to_stop < 30
    assert broken.left_after_interrupt == []
    assert balances(broken.ledger_after_interrupt)


def test_death_of_the_learner_ends_the_run_with_its_name_and_loses_nothing(broken):
    assert broken.killed_code == 70
    assert "learner ended with exit code -9" in broken.output
    assert broken.left_after_kill == []
    assert balances(broken.ledger_after_kill)
    assert broken.ledger_after_kill["trained"] >= GROUPS


def test_continued_run_trains_every_group_once(broken):
    assert broken.ledger() == {"admitted": STEPS * GROUPS, "trained": STEPS * GROUPS, "dropped": {}, "in_flight": 0}


def test_same_seed_asks_the_same_prompts_in_the_same_order_interrupted_or_not(whole, broken):
    assert prompts_by_step(whole) == prompts_by_step(broken)
    assert sorted(prompts_by_step(whole)) == list(range(1, STEPS + 1))
