"""A learner of two ranks, each with parts of every weight: what it saves, publishes and exports is one model."""

import json

import pytest

from pacs.runtime.config_file import load_config
from pacs.transport.manifest import joined_digest
from tests.e2e.conftest import EXAMPLE, ROOT, all_pids, balances, command_line

pytestmark = pytest.mark.e2e

STEPS, GROUPS = 3, 16
SETTINGS = (
    f"run.max_steps={STEPS}",
    "learner.ranks=2",
    "learner.zero_stage=3",
    "learner.checkpoint_every_steps=1",
    f"learner.keep_checkpoints={STEPS}",
    "evaluation.every_steps=1",
    "evaluation.max_problems=40",
)


@pytest.fixture(scope="module")
def run(new_run):
    ran = new_run("two-ranks", *SETTINGS)
    ran.start()
    ran.wait_for_step(1)
    ran.followers = [pid for pid in ran.processes() if "services.learner.follower" in command_line(pid)]
    assert ran.wait(300) == 0, ran.output
    return ran


def digest_of_model(folder):
    from safetensors.torch import load_file

    from pacs.transport.weights import digest

    return joined_digest({name: digest(tensor) for name, tensor in load_file(folder / "model.safetensors").items()})


def test_every_publication_is_verified(run):
    publications = run.history("publication")
    assert [(p["step"], p["policy_version"]) for p in publications] == [(n, n + 1) for n in range(STEPS + 1)]
    assert max(p["max_logprob_gap"] for p in publications) < 1e-4
    assert max(step["logprob_gap_max"] for step in run.history("step")) < 1e-4, "sampled by the weights of the learner"


def test_each_comes_after_the_checkpoint_of_its_weights_and_the_evaluation_of_those_before(run):
    order = [(entry["kind"], entry["policy_version"]) for entry in run.history("publication", "evaluation")]
    assert order == [(kind, n + 1) for n in range(STEPS + 1) for kind in ("publication", "evaluation")]
    for step in range(1, STEPS + 1):
        checkpoint = run.path / "checkpoints" / f"step-{step:08d}"
        assert json.loads((checkpoint / "checkpoint.json").read_text())["policy_version"] == step, "live when saved"
        assert len(list(checkpoint.rglob("*_optim_states.pt"))) == 2, "a part of each rank"


def test_the_rollout_had_the_model_of_the_start_first_and_the_exported_one_last(run):
    received = [publication["weights"] for publication in run.history("publication")]
    assert len(set(received)) == STEPS + 1
    assert received[0] == digest_of_model(ROOT / load_config(EXAMPLE).model.path)
    assert received[-1] == digest_of_model(run.path / "export")


def test_every_group_is_trained_once_and_nothing_is_left(run):
    ledger = run.ledger()
    assert balances(ledger)
    assert (ledger["trained"], ledger["dropped"], ledger["in_flight"]) == (STEPS * GROUPS, {}, 0)
    assert run.summary["state"] == "finished"
    assert run.processes() == []
    assert len(run.followers) == 1, "the other rank, whose command line does not name the run"
    assert not set(run.followers) & set(all_pids())
