"""Every program of the case file, in every surrounding: hostile ones are never right, honest ones always are."""

import json
import subprocess

import pytest

from tests.sandbox_worlds import CASES, WORLDS, command_in, why_not

ROWS = [json.loads(line) for line in CASES.read_text().splitlines()]

COMBINATIONS = [
    ("root", "strong"),
    ("user", "strong"),
    ("root", "landlock"),
    ("container-root", "auto"),
    ("container-user", "auto"),
]
CONTAINER_MODE = "landlock"
TIMEOUT_SECONDS = 240
JUDGE_CPU_SECONDS = 20.0
JUDGE_PEAK_MIB = 400
MOST_PROCESSES = 4 * 2  # slots, and two a slot


@pytest.fixture(scope="module", params=COMBINATIONS, ids="-".join)
def report(request):
    world, isolation = WORLDS[request.param[0]], request.param[1]
    reason = why_not(world, isolation)
    if reason:
        pytest.skip(reason)
    with command_in(world, "tests.sandbox_case_runner", isolation, "tests/cases/sandbox.jsonl") as (
        command,
        environment,
    ):
        done = subprocess.run(
            command,
            env=environment,
            cwd=CASES.parents[2],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["isolation"] == (CONTAINER_MODE if isolation == "auto" else isolation)
    assert found["user"] == world.user
    return found


def test_labels_are_right(report):
    assert len(report["labels"]) == len(ROWS) == 93
    wrong = {
        row["id"]: report["labels"][row["id"]]
        for row in ROWS
        if (report["labels"][row["id"]][0] == "ok") is not row["expected_label"]
    }
    assert wrong == {}


def test_every_program_is_judged(report):
    not_judged = {name: method for name, (status, method) in report["labels"].items() if status == "error"}
    assert not_judged == {}


def test_the_judge_pays_little_for_hostile_programs(report):
    assert report["judge_cpu_seconds"] < JUDGE_CPU_SECONDS
    assert report["judge_peak_mib"] < JUDGE_PEAK_MIB


def test_nothing_is_left(report):
    assert report["most_processes"] <= MOST_PROCESSES
    assert report["left_processes"] == 0
    assert report["left_after_close"] == 0
    assert report["left_descriptors"] == 0
    assert report["threads"] == 1
