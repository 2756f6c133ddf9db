"""One run, from the fork to its end: arrange descriptors, lock down, say so, run."""

import fcntl
import os
import signal
import sys
from dataclasses import replace
from typing import Any, NoReturn

from services.verifier.sandbox.inside import asserts, calls, program
from services.verifier.sandbox.inside.lockdown import Locks, lock_down

__all__ = ["ENTRIES", "LOCKED", "run"]

ENTRIES = ("program", "calls", "asserts")
LOCKED = b"L"
"""What a child writes once it is locked down: without it, whatever ended was not the program."""

OWN_MODULES = "services"
OUT_OF_THE_WAY = 100  # descriptors are moved up here before they are put in their places
AFTER_STREAMS = 5


def run(
    request: dict[str, Any], descriptors: list[int], locked: int, locks: Locks, tasks: int, path: list[str]
) -> NoReturn:
    """Become the run that the judge asked for; never returns.

    Args:
        request: entry and limits.
        descriptors: program, stdin, stdout, stderr, and for the entries that talk also requests and replies.
        locked: where to say that the lock-down is complete.
        locks: what the zygote has ready.
        tasks: processes and threads that count besides this one's.
        path: where programs import from.

    """
    os.setsid()
    source, locked, locks = _arrange(descriptors, locked, locks)
    _forget_the_zygote(path)
    lock_down(request, locks, tasks)
    if locks.rules is not None:
        os.close(locks.rules)
    os.write(locked, LOCKED)
    os.close(locked)
    os._exit(_enter(request, source))


def _enter(request: dict[str, Any], source: str) -> int:
    if request["entry"] == "asserts":
        asserts.judge(source)
        return 0
    if request["entry"] == "calls":
        return program.run(source, lambda names: calls.serve(names, request["message_bytes"]))
    return program.run(source)


def _arrange(descriptors: list[int], locked: int, locks: Locks) -> tuple[str, int, Locks]:
    """Put the streams at 0 to 4, keep what is still needed above them, close everything else."""
    code, *streams = (_moved_up(descriptor) for descriptor in descriptors)
    source = os.pread(code, os.fstat(code).st_size, 0).decode("utf-8", "replace")
    kept = [_moved_up(locked)] + ([] if locks.rules is None else [_moved_up(locks.rules)])
    for place, descriptor in enumerate(streams):
        os.dup2(descriptor, place)
    for place, descriptor in enumerate(kept, AFTER_STREAMS):
        os.dup2(descriptor, place)
    os.closerange(len(streams), AFTER_STREAMS)
    os.closerange(AFTER_STREAMS + len(kept), os.sysconf("SC_OPEN_MAX"))
    return source, AFTER_STREAMS, replace(locks, rules=None if locks.rules is None else AFTER_STREAMS + 1)


def _moved_up(descriptor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, OUT_OF_THE_WAY)


def _forget_the_zygote(path: list[str]) -> None:
    """Leave a program what a fresh interpreter would have."""
    for name in [name for name in sys.modules if name.split(".")[0] == OWN_MODULES]:
        del sys.modules[name]
    sys.path[:] = path
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    program.open_standard_streams()
