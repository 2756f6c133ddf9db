"""Processes that must not outlive each other: a child ends with its parent, a service takes its own children along.

`python -m pacs.runtime.family PROGRAM …` runs a foreign program under the same rule.
"""

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

__all__ = ["PARENT_VARIABLE", "end_session", "exit_with_parent"]

PARENT_VARIABLE = "PACS_EXIT_WITH_PARENT"
PR_SET_PDEATHSIG = 1
SESSION_FIELD = 3  # of /proc/<pid>/stat, counted behind the command's closing parenthesis


def exit_with_parent(by: signal.Signals = signal.SIGTERM) -> None:
    """Ask the kernel for a signal when the parent dies, if the parent said so by PACS_EXIT_WITH_PARENT=<its pid>.

    A run started by `pacs run` must not outlive it, not even when that was killed with SIGKILL.
    """
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, by)
    if os.getppid() != int(parent):  # it died before we asked
        raise SystemExit(f"the parent process {parent} is gone")


def end_session() -> None:
    """Kill what is left in the session this process leads; a process that leads none has nothing of its own to end."""
    if os.getsid(0) != os.getpid():
        return
    for pid in _session_members(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _session_members(session: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == session:
            continue
        with contextlib.suppress(OSError):  # it ended while we looked
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[SESSION_FIELD]) == session:
                members.append(int(entry.name))
    return members


if __name__ == "__main__":
    exit_with_parent()
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606  # no shell is wanted
