"""System calls for which Python has no function."""

import ctypes
import os
import struct

from services.verifier.sandbox.inside.syscalls import this_architecture

__all__ = [
    "clear_capabilities",
    "die_with_parent",
    "forbid_dumps",
    "forbid_new_privileges",
    "own_user_namespace",
    "prctl",
    "system_call",
]

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 1, 4, 38
CLONE_NEWUSER = 0x10000000
CAPABILITY_VERSION_3 = 0x20080522
SIGKILL = 9

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def system_call(name: str, *arguments: object) -> int:
    """Call the kernel by name.

    Args:
        name: as in the tables of `syscalls`.
        arguments: integers or ctypes references.

    Raises:
        OSError: what the kernel answered.

    """
    number = this_architecture()[1][name]
    words = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    result: int = libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        _fail(name)
    return result


def prctl(option: int, *arguments: object) -> None:
    """Set a property of this process; raises OSError with what the kernel answered."""
    words = [ctypes.c_ulong(argument) if isinstance(argument, int) else argument for argument in arguments]
    if libc.prctl(option, *words, *[ctypes.c_ulong(0)] * (4 - len(words))) < 0:
        _fail(f"prctl {option}")


def die_with_parent(parent: int) -> None:
    """Be killed when the process that forked this one ends; a change of user undoes it, so ask again after one.

    Raises:
        OSError: the parent has already ended.

    """
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != parent:
        raise OSError("the parent has already ended")


def forbid_dumps() -> None:
    """Leave no core file, and let no other process of the user look inside."""
    prctl(PR_SET_DUMPABLE, 0)


def forbid_new_privileges() -> None:
    """Make set-user-id files and file capabilities without effect, for good; seccomp and Landlock ask for it."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def clear_capabilities() -> None:
    """Give up every capability, for good: there is no exec to get one back by."""
    header = ctypes.create_string_buffer(struct.pack("=Ii", CAPABILITY_VERSION_3, 0), 8)
    none = ctypes.create_string_buffer(24)
    system_call("capset", ctypes.byref(header), ctypes.byref(none))


def own_user_namespace() -> None:
    """Move into a user namespace of one's own, in which tasks are counted from nought."""
    system_call("unshare", CLONE_NEWUSER)


def _fail(what: str) -> None:
    code = ctypes.get_errno()
    raise OSError(code, f"{what}: {os.strerror(code)}")
