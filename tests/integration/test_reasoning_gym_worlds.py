"""The scorers that need the sandbox, in every surrounding."""

import json
import subprocess

import pytest

from tests.sandbox_worlds import ROOT, WORLDS, command_in, why_not

TIMEOUT_SECONDS = 240


@pytest.mark.parametrize(
    ("world", "isolation"),
    [("root", "strong"), ("user", "strong"), ("container-root", "landlock"), ("container-user", "landlock")],
)
def test_golds_verify_and_programs_do_not_run(world, isolation):
    pytest.importorskip("reasoning_gym")
    reason = why_not(WORLDS[world], isolation)
    if reason:
        pytest.skip(reason)
    with command_in(WORLDS[world], "tests.reasoning_gym_runner") as (command, environment):
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["isolation"] == isolation, done.stderr[-3000:]
    assert len(found["statuses"]) == 8
    assert set(map(tuple, found["statuses"].values())) == {("ok", "wrong")}
