"""The four service processes of a local run: started with their surroundings, watched, stopped."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pacs.local.workspace import Workspace
from pacs.runtime.family import PARENT_VARIABLE

__all__ = ["SERVICES", "Services"]

SERVICES = ("control", "verifier", "rollout", "learner")
FIRST_TO_STOP = ("learner", "rollout", "verifier")  # control stays to answer them
GRACE_SECONDS = 18.0  # of the first; with control's and Redis' own a stop stays under 30 s
CONTROL_GRACE_SECONDS = 7.0
LAST_LINES = 8
POLL_SECONDS = 0.05


class Services:
    """Processes by name.

    Args:
        workspace: where logs go.
        environment: what the services need beside their configuration: addresses and secrets.

    """

    def __init__(self, workspace: Workspace, environment: Mapping[str, str]) -> None:
        self._workspace = workspace
        self._environment = {**os.environ, **environment, PARENT_VARIABLE: str(os.getpid())}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all four; they wait for each other."""
        for name in SERVICES:
            with self.log(name).open("ab") as output:
                # A session of its own: Ctrl-C in the terminal is for `pacs run`, which stops them in order.
                self._processes[name] = subprocess.Popen(
                    [sys.executable, "-m", f"services.{name}", str(self._workspace.config_file)],
                    stdout=output,
                    stderr=output,
                    stdin=subprocess.DEVNULL,
                    env=self._environment,
                    start_new_session=True,
                )

    def log(self, name: str) -> Path:
        """A service's log file."""
        return self._workspace.log_directory / f"{name}.log"

    def pid(self, name: str) -> int:
        """A service's process id."""
        return self._processes[name].pid

    def ended(self) -> tuple[str, int] | None:
        """A service that has ended, with its exit code; None while all run."""
        for name, process in self._processes.items():
            if (code := process.poll()) is not None:
                return name, code
        return None

    def last_words(self, name: str) -> str:
        """The end of a service's log."""
        lines = self.log(name).read_text(errors="replace").splitlines()
        return "\n".join(lines[-LAST_LINES:])

    def stop(self) -> list[str]:
        """Stop all in order; returns those that had to be killed."""
        killed = self._stop(FIRST_TO_STOP, GRACE_SECONDS)
        return killed + self._stop(("control",), CONTROL_GRACE_SECONDS)

    def _stop(self, names: "tuple[str, ...]", grace_seconds: float) -> list[str]:
        running = {n: p for n in names if (p := self._processes.get(n)) is not None and p.poll() is None}
        for process in running.values():
            process.terminate()
        deadline = time.monotonic() + grace_seconds
        while any(p.poll() is None for p in running.values()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        late = [name for name, process in running.items() if process.poll() is None]
        for name in names:
            if name in self._processes:
                _kill_session(self._processes[name])
        return late


def _kill_session(process: "subprocess.Popen[bytes]") -> None:
    """End whatever a service left in its session; each leads a session of its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()
