"""Every objective improves on its start, in the same learner and with the same run file."""

import pytest

from tests.e2e.conftest import balances

pytestmark = pytest.mark.e2e

STEPS = 12
# Of 300 problems, each sampled once before and once after: the standard error of the difference is about 0.04, so a
# policy that learned nothing would pass one time in fifteen. Gains of 0.15 to 0.24 were seen.
LEAST_GAIN = 0.06
ALGORITHMS = {
    "pacs": (),
    # Against a kept reference samples pull less the better they fit: it takes longer.
    "pacs-with-resets": ("algorithm.reference=interval", "reset.every_steps=8", "run.max_steps=24"),
    "pacs-with-adapters": ("model.lora.rank=16", "learner.learning_rate=5e-4"),
    **{name: (f"algorithm.name={name}",) for name in ("grpo", "dr_grpo", "rloo", "reinforce", "ppo")},
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_held_out_accuracy_rises(new_run, name):
    run = new_run(name, f"run.max_steps={STEPS}", "evaluation.every_steps=0", *ALGORITHMS[name])
    run.start()
    assert run.wait(400) == 0, run.output
    summary = run.summary
    assert summary["heldout_problems"] == 300
    assert summary["accuracy_after"] >= summary["accuracy_before"] + LEAST_GAIN, summary
    assert balances(run.ledger())
    if name == "pacs-with-resets":
        assert [entry["step"] for entry in run.history("step") if entry["reset"]] == [8, 16]
        assert [entry["reference_epoch"] for entry in run.history("step")][-1] == 2
