"""The processes of the other ranks, with small programs in their place."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from pacs.errors import BadInput, ServiceFailed
from pacs.testing import make_config
from services.learner import rank_processes
from services.learner.rank_processes import RankProcesses
from services.learner.ranks import Launched, is_follower, open_engine


def program(text):
    return (sys.executable, "-c", text)


@pytest.fixture
def lost():
    """What `on_lost` was called with, and an event that it was."""
    return [], threading.Event()


@pytest.fixture
def processes(lost):
    found, told = lost
    family = RankProcesses(lambda error: (found.append(error), told.set()))
    yield family
    family.close(None)


def test_a_rank_that_ends_is_named_with_its_exit_code(processes, lost):
    found, told = lost
    processes.start(3, {}, program("import os, time; time.sleep(60 if os.environ['RANK'] == '1' else 0); os._exit(7)"))
    assert told.wait(20)
    assert "learner rank 2 (process" in str(found[0])
    assert "ended with exit code 7" in str(found[0])
    assert processes.lost_within(0) is found[0]
    with pytest.raises(ServiceFailed, match="rank 2"):
        processes.raise_if_lost()


def test_a_rank_that_ends_well_but_unasked_is_lost_too(processes, lost):
    found, told = lost
    processes.start(2, {}, program("pass"))
    assert told.wait(20)
    assert "ended with exit code 0" in str(found[0])


def test_a_killed_rank_is_named_with_the_signal(processes, lost):
    found, told = lost
    processes.start(2, {}, program("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    assert told.wait(20)
    assert "was killed by SIGKILL" in str(found[0])


def test_ranks_that_are_dismissed_are_not_lost(processes, lost, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    processes.start(2, {}, program(f"open({str(gate)!r}).read()"))
    processes.close(lambda: gate.write_text("go"))
    assert processes.lost_within(0) is None
    assert lost[0] == []


def test_ranks_that_are_not_told_are_killed(processes):
    processes.start(2, {}, program("import time; time.sleep(600)"))
    (process,) = processes._processes.values()
    processes.close(None)
    assert process.returncode == -signal.SIGKILL
    assert processes.lost_within(0) is None


def test_ranks_know_their_place_and_their_parent(processes, lost, tmp_path):
    out = tmp_path / "out"
    names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_PORT", "PACS_EXIT_WITH_PARENT"]
    text = f"import os; open({str(out)!r}, 'w').write(' '.join(os.environ[n] for n in {names!r}))"
    processes.start(2, {"MASTER_PORT": "5"}, program(text))
    assert lost[1].wait(20)
    assert out.read_text().split() == ["1", "1", "2", "5", str(os.getpid())]


def test_a_rank_zero_that_cannot_react_is_ended(tmp_path):
    text = (
        "import sys, threading; from services.learner import rank_processes as r; r.LAST_RESORT_SECONDS = 0.1\n"
        "p = r.RankProcesses(lambda error: None); p.start(2, {}, (sys.executable, '-c', 'raise SystemExit(9)'))\n"
        "threading.Event().wait(60)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 70


def test_the_last_resort_comes_after_an_orderly_end_has_had_its_time():
    assert rank_processes.LAST_RESORT_SECONDS > 10  # the line to Redis and control takes up to that to close


LAUNCHER = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.fixture
def environment(monkeypatch):
    for name in LAUNCHER:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_without_a_launcher_nobody_follows(environment):
    assert Launched.read() is None
    assert not is_follower()
    environment.setenv("RANK", "1")  # alone it may be anybody's
    assert not is_follower()


def test_a_launcher_says_who_follows(environment):
    for name, value in LAUNCHER.items():
        environment.setenv(name, value)
    assert Launched.read() == Launched(rank=1, ranks=2, local_rank=0)
    assert is_follower()
    environment.setenv("RANK", "0")
    assert not is_follower()


def test_a_launcher_must_say_everything(environment):
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        environment.setenv(name, LAUNCHER[name])
    with pytest.raises(BadInput, match=r"must set \['LOCAL_RANK', 'WORLD_SIZE'\] too"):
        is_follower()


def test_the_launchers_number_of_ranks_must_be_the_configured_one(environment):
    for name, value in {**LAUNCHER, "RANK": "0"}.items():
        environment.setenv(name, value)
    with (
        pytest.raises(BadInput, match=r"got learner.ranks=3 and WORLD_SIZE=2; set learner.ranks"),
        open_engine(make_config({"learner.ranks": 3})),
    ):
        pass
