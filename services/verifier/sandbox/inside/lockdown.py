"""Takes from a forked child every right it does not need, in the order in which each step still may."""

import math
import os
import resource
from dataclasses import dataclass
from typing import Any

from services.verifier.sandbox.inside.kernel import (
    clear_capabilities,
    die_with_parent,
    forbid_dumps,
    forbid_new_privileges,
    own_user_namespace,
)
from services.verifier.sandbox.inside.landlock import restrict
from services.verifier.sandbox.inside.seccomp import Filter

__all__ = ["Locks", "lock_down"]

OPEN_FILES = 64
STACK_BYTES = 64 << 20


@dataclass(frozen=True)
class Locks:
    """What the zygote has ready for its children.

    Args:
        zygote: process id of the zygote.
        rules: descriptor of the Landlock rules, None in mode weak.
        system_calls: the seccomp filter, None in mode weak.
        own_namespace: whether a child moves into its own user namespace, so that its tasks are counted alone.
        first_user: user id of slot 0, None where the zygote may not change users.
        keep_file_user: whether files are still read as the zygote's user, because only that one may read Python's.

    """

    zygote: int
    rules: int | None
    system_calls: Filter | None
    own_namespace: bool
    first_user: int | None
    keep_file_user: bool


def lock_down(request: dict[str, Any], locks: Locks, tasks_of_others: int) -> None:
    """Bind this process to the limits of its request; raises OSError if any step fails, and then nothing may run.

    Args:
        request: the limits, as the judge sent them.
        locks: what the zygote has ready.
        tasks_of_others: processes and threads that count against this process's limit besides its own.

    """
    _limit(request)
    forbid_dumps()
    die_with_parent(locks.zygote)
    if locks.own_namespace:
        own_user_namespace()
    if locks.first_user is not None:
        _become(locks.first_user + request["user"], locks.keep_file_user)
        die_with_parent(locks.zygote)
    _set(resource.RLIMIT_NPROC, tasks_of_others + request["threads"])
    _set(resource.RLIMIT_AS, request["memory_bytes"])
    clear_capabilities()
    forbid_new_privileges()
    if locks.rules is not None:
        restrict(locks.rules)
    if locks.system_calls is not None:
        locks.system_calls.install(os.getpid())


def _limit(request: dict[str, Any]) -> None:
    cpu_seconds = math.ceil(request["cpu_seconds"])
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))  # SIGXCPU, and SIGKILL if that is ignored
    _set(resource.RLIMIT_FSIZE, request["output_bytes"])
    _set(resource.RLIMIT_NOFILE, OPEN_FILES)
    _set(resource.RLIMIT_STACK, STACK_BYTES)
    for nothing in (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE):
        _set(nothing, 0)


def _set(kind: int, value: int) -> None:
    resource.setrlimit(kind, (value, value))


def _become(user: int, keep_file_user: bool) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, os.geteuid() if keep_file_user else user, user)  # tasks are counted by the first of the three
