"""The inside of a worker process: JSON lines in, JSON lines out, under a memory limit.

The worker runs third-party code on text that a model wrote. It holds nothing worth taking, and whoever started it kills
it at the deadline; nothing in here tries to stop a computation from within. It walls itself in before it answers.
"""

import json
import os
import resource
import sys
from collections.abc import Callable
from typing import Any

from services.verifier.checkers.worker_lockdown import limit, wall_in
from services.verifier.sandbox.inside.kernel import die_with_parent

__all__ = ["WITHOUT_WALLS", "serve"]

Handler = Callable[[dict[str, Any]], dict[str, Any]]

READY = {"ready": True}
MEMORY_BYTES = 1 << 30
OUT_OF_MEMORY_EXIT = 70
WITHOUT_WALLS = "--without-walls"


def serve(load: Callable[[], Handler]) -> None:
    """Load the handler, say that it is ready, then answer requests until the input ends.

    Args:
        load: imports all it will need from outside Python's own folders, and what is heavy, and returns the function
            that answers one request.

    """
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    die_with_parent(os.getppid())
    requests, replies = _take_over_standard_streams()
    handle = load()
    failure = _lock_down()
    _write(replies, {"failed": failure} if failure else READY)
    if failure:
        return
    _silence_errors()  # a failed start is worth reading, what third-party code prints about an answer is not
    with os.fdopen(requests, encoding="utf-8") as lines:
        for line in lines:
            _write(replies, _reply(handle, json.loads(line)))


def _lock_down() -> str:
    """Give up what answering does not need, after all imports; returns why that failed, empty where it did not."""
    try:
        limit()
        if WITHOUT_WALLS not in sys.argv:
            wall_in()
    except OSError as error:
        return (
            f"its walls do not stand ({error}); they need Linux 5.13 with Landlock and seccomp, "
            "verifier.sandbox.isolation: weak does without"
        )
    return ""


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
