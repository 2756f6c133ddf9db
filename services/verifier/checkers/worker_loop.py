"""The inside of a worker process: JSON lines in, JSON lines out, under a memory limit.

The worker runs third-party code on text that a model wrote. It holds nothing worth taking, and whoever started it kills
it at the deadline; nothing in here tries to stop a computation from within.
"""

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["serve"]

Handler = Callable[[dict[str, Any]], dict[str, Any]]

READY = {"ready": True}
MEMORY_BYTES = 1 << 30
OUT_OF_MEMORY_EXIT = 70
PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
OPEN_FILES = 64
LOCKED = (
    (resource.RLIMIT_CORE, 0),  # a dump would hold the completions
    (resource.RLIMIT_FSIZE, 0),  # no file grows; pipes are none
    (resource.RLIMIT_NOFILE, OPEN_FILES),
    (resource.RLIMIT_NPROC, 0),  # no thread and no process; the kernel does not count it for root
)


def serve(load: Callable[[], Handler]) -> None:
    """Load the handler, say that it is ready, then answer requests until the input ends.

    Args:
        load: imports what is heavy and returns the function that answers one request.

    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    _die_with_parent()
    requests, replies = _take_over_standard_streams()
    handle = load()
    _lock_down()
    _write(replies, READY)
    _silence_errors()  # a failed start is worth reading, what third-party code prints about an answer is not
    with os.fdopen(requests, encoding="utf-8") as lines:
        for line in lines:
            _write(replies, _reply(handle, json.loads(line)))


def _lock_down() -> None:
    """Give up what answering does not need, after all imports; a sandbox around this process can only add to it."""
    for limit, value in LOCKED:
        resource.setrlimit(limit, (value, value))
    _prctl("PR_SET_NO_NEW_PRIVS", PR_SET_NO_NEW_PRIVS, 1)


def _reply(handle: Handler, request: dict[str, Any]) -> dict[str, Any]:
    try:
        body = handle(request)
    except MemoryError:
        # What is left of the heap is not worth trusting: the parent retries once on a fresh process.
        os._exit(OUT_OF_MEMORY_EXIT)
    except Exception as error:  # third-party code raises whatever it likes on hostile text; the parent is told
        body = {"status": "error", "detail": type(error).__name__}
    return {"id": request["id"], **body}


def _write(descriptor: int, message: dict[str, Any]) -> None:
    data = (json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(descriptor, data) :]


def _take_over_standard_streams() -> tuple[int, int]:
    """Move the conversation to private descriptors, so that a stray print or input cannot put it out of step."""
    requests, replies = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    return requests, replies


def _silence_errors() -> None:
    sys.stderr.flush()
    os.dup2(1, 2)


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it ends, however that happens."""
    _prctl("PR_SET_PDEATHSIG", PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(name: str, option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({name}) failed; a worker must not run without it")
