"""A local run as a user starts it, on ports of its own, with everything it prints kept."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pacs.local.ports import free_ports
from pacs.runtime.config_file import load_config

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "arithmetic.yaml"
PACS = "import sys; from pacs.cli import main; sys.argv[0] = 'pacs'; main()"


class LocalRun:
    """Starts of one run, one after the other."""

    def __init__(self, name: str, directory: Path, overrides: list[str]) -> None:
        self.path = directory / name
        keys = load_config(EXAMPLE).ports
        ports = [f"{key}={port}" for key, port in zip(keys, free_ports(len(keys)), strict=True)]
        self._overrides = [f"run.name={name}", f"run.directory={directory}", *ports, *overrides]
        self._output = directory / f"{name}.out"
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PACS, "run", str(EXAMPLE), *(f"--set={o}" for o in self._overrides)],
                cwd=ROOT, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the end; returns the exit code."""
        try:
            return self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the run did not end within {timeout_seconds} s; it said:\n{self.output[-3000:]}")

    def wait_for_step(self, step: int, timeout_seconds: float = 240) -> None:
        """Wait until this step stands in the history."""
        deadline = time.monotonic() + timeout_seconds
        while not any(e["step"] >= step for e in self.history("step")):
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"step {step} never came; the run said:\n{self.output[-3000:]}")
            time.sleep(0.2)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill_service(self, name: str) -> None:
        os.kill(next(pid for pid in self.processes() if f"services.{name}" in command_line(pid)), signal.SIGKILL)

    def processes(self) -> list[int]:
        """Processes that name this run's folder, or belong to a session that one of them leads."""
        mine = [pid for pid in all_pids() if str(self.path) in command_line(pid)]
        return mine + [pid for pid in all_pids() if session(pid) in mine and pid not in mine]

    @property
    def output(self) -> str:
        return self._output.read_text()

    def history(self, *kinds: str) -> list[dict]:
        """Entries of these kinds, oldest first."""
        file = self.path / "metrics.jsonl"
        entries = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [e for e in entries if e["kind"] in kinds]

    @property
    def summary(self) -> dict:
        return json.loads((self.path / "summary.json").read_text())

    def ledger(self) -> dict:
        """What `pacs ledger --json` prints."""
        done = subprocess.run(
            [sys.executable, "-c", PACS, "ledger", "--json", "--run", str(self.path)],
            cwd=ROOT, capture_output=True, text=True, check=True, timeout=120,
        )  # fmt: skip
        return json.loads(done.stdout)

    def clean_up(self) -> None:
        """Leave nothing behind, whatever the test did."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


def all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def session(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return 0


def balances(ledger: dict) -> bool:
    return ledger["admitted"] == ledger["trained"] + sum(ledger["dropped"].values()) + ledger["in_flight"]


@pytest.fixture(scope="module")
def new_run(tmp_path_factory) -> Iterator:
    """A factory of runs that are cleaned up at the end of the module."""
    directory = tmp_path_factory.mktemp("runs")
    made: list[LocalRun] = []

    def make(name: str, *overrides: str) -> LocalRun:
        made.append(LocalRun(name, directory, list(overrides)))
        return made[-1]

    yield make
    for run in made:
        run.clean_up()
