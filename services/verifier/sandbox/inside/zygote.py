"""The warm parent of all runs: started once, holds no secret, forks a child for every request of the judge."""

import array
import atexit
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from dataclasses import dataclass
from typing import Any

from services.verifier.sandbox.inside import child
from services.verifier.sandbox.inside.landlock import read_only_rules
from services.verifier.sandbox.inside.lockdown import Locks
from services.verifier.sandbox.inside.seccomp import build_filter
from services.verifier.sandbox.inside.task_count import TaskCount

__all__ = ["MAX_MESSAGE_BYTES", "serve"]

MAX_MESSAGE_BYTES = 4096
MAX_DESCRIPTORS = 8
ALONE = 1  # a run whose tasks are counted apart has one task, its own
NOT_LOCKED_EXIT = 70
OPEN_FILES = 1024  # three a run; and a child closes up to this number one by one where it must


@dataclass
class Live:
    """A child that has not been seen to end."""

    run: int
    pid: int
    locked: int
    started: float
    deadline: float
    killed: str = ""


def serve(config: dict[str, Any], path: list[str]) -> None:
    """Import what programs use, say that the zygote is ready, and serve until the judge closes the socket.

    Args:
        config: written by `sandbox/command.py`.
        path: where programs import from.

    """
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    path = [*path, *config["packages"]]
    sys.path.extend(config["packages"])
    for name in config["preload"]:
        importlib.import_module(name)
    _import_packages(config["preload_packages"])
    zygote = Zygote(socket.socket(fileno=config["socket"]), _locks(config), path)
    gc.collect()
    gc.freeze()
    zygote.serve()


def _import_packages(names: list[str]) -> None:
    """Import what is not of the standard library, without what it leaves in the environment and for its exit."""
    environment, register = dict(os.environ), atexit.register
    atexit.register = lambda function, *_, **__: function  # type: ignore[assignment]
    try:
        for name in names:
            importlib.import_module(name)
    finally:
        atexit.register = register
        os.environ.clear()
        os.environ.update(environment)


def _locks(config: dict[str, Any]) -> Locks:
    return Locks(
        zygote=os.getpid(),
        rules=read_only_rules(config["folders"], config["files"]) if config["locked"] else None,
        system_calls=build_filter() if config["locked"] else None,
        own_namespace=config["own_namespace"],
        first_user=config["first_user"],
        keep_file_user=config["keep_file_user"],
    )


class Zygote:
    """The loop: requests in, ends of children out."""

    def __init__(self, judge: socket.socket, locks: Locks, path: list[str]) -> None:
        self._judge = judge
        self._locks = locks
        self._path = path
        self._live: dict[int, Live] = {}  # by pidfd
        self._poll = select.poll()
        self._poll.register(judge.fileno(), select.POLLIN)
        counted_apart = locks.own_namespace or locks.first_user is not None
        self._tasks = None if counted_apart else TaskCount()

    def serve(self) -> None:
        """Serve until the judge is gone; the children then go with this process."""
        self._send({"ready": True})
        while True:
            for descriptor, _ in self._poll.poll(self._milliseconds_to_deadline()):
                if descriptor in self._live:
                    self._report(descriptor)
                elif not self._receive():
                    return
            self._kill_overdue()

    def _receive(self) -> bool:
        room = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
        data, ancillary, _, _ = self._judge.recvmsg(MAX_MESSAGE_BYTES, room)
        if not data:
            return False
        descriptors = array.array("i")
        for _, _, payload in ancillary:
            descriptors.frombytes(payload)
        request = json.loads(data)
        if "kill" in request:
            self._kill(request["kill"])
        else:
            self._start(request, list(descriptors))
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _start(self, request: dict[str, Any], descriptors: list[int]) -> None:
        locked, say_locked = os.pipe()
        started = time.monotonic()
        try:
            pid = os.fork() if self._tasks is None else self._tasks.fork()
        except OSError as error:
            os.close(locked)
            os.close(say_locked)
            self._send({"run": request["run"], "failed": f"fork: {error}"})
            return
        if pid == 0:
            self._become_child(request, descriptors, say_locked)
        os.close(say_locked)
        descriptor = os.pidfd_open(pid)
        self._live[descriptor] = Live(request["run"], pid, locked, started, started + request["wall_seconds"])
        self._poll.register(descriptor, select.POLLIN)

    def _become_child(self, request: dict[str, Any], descriptors: list[int], say_locked: int) -> None:
        tasks = ALONE if self._tasks is None else self._tasks.estimate
        try:
            child.run(request, descriptors, say_locked, self._locks, tasks, self._path)
        except BaseException:  # before the lock-down only our own code runs; after it, `child.run` exits
            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(NOT_LOCKED_EXIT)

    def _report(self, descriptor: int) -> None:
        live = self._live.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        _, status, usage = os.wait4(live.pid, 0)
        locked = os.read(live.locked, 1) == child.LOCKED
        os.close(live.locked)
        self._send(
            {
                "run": live.run,
                "status": status,
                "killed": live.killed,
                "locked": locked,
                "cpu_seconds": usage.ru_utime + usage.ru_stime,
                "wall_seconds": time.monotonic() - live.started,
                "peak_bytes": usage.ru_maxrss * 1024,
            }
        )

    def _kill(self, run: int) -> None:
        for live in self._live.values():
            if live.run == run and not live.killed:
                live.killed = "asked"
                os.kill(live.pid, signal.SIGKILL)

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for live in self._live.values():
            if live.deadline <= now and not live.killed:
                live.killed = "wall"
                os.kill(live.pid, signal.SIGKILL)

    def _milliseconds_to_deadline(self) -> float | None:
        waiting = [live.deadline for live in self._live.values() if not live.killed]
        return max(0.0, min(waiting) - time.monotonic()) * 1000 + 1 if waiting else None

    def _send(self, message: dict[str, Any]) -> None:
        self._judge.send(json.dumps(message).encode())
