"""The system call filter: a list of what a program may ask of the kernel (man 2 seccomp, linux/filter.h).

No fork, no exec, no sockets but pairs of one's own, no files opened for writing, signals to oneself only.
"""

import ctypes
import errno
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from services.verifier.sandbox.inside.kernel import prctl
from services.verifier.sandbox.inside.syscalls import ALWAYS_ALLOWED, Architecture, this_architecture

__all__ = ["Filter", "build_filter"]

PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
KILL_PROCESS, ERRNO, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000

LOAD, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_OFFSET, ARCHITECTURE_OFFSET, ARGUMENTS_OFFSET = 0, 4, 16
X32_CALLS = 0x40000000
INSTRUCTION_BYTES = 8

CLONE_THREAD = 0x00010000
CLONE_NEW_NAMESPACES = 0x7E020080
WRITING_FLAGS = 0o3 | 0o100 | 0o1000 | 0o20000000  # O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, __O_TMPFILE
NAMING_OPTIONS = (15, 16, 0x53564D41)  # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA
TERMINAL_AND_BLOCKING = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS … FIONBIO, FIONCLEX, FIOCLEX
DESCRIPTOR_COMMANDS = (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032)  # not F_SETPIPE_SZ, which is memory outside every limit
AF_UNIX = 1
SIGKILL = 9
OWN_PID = 0xFFFFFFF1
"""Stands for the run's process id until it is known; no process has this number."""

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, value


@dataclass(frozen=True)
class Filter:
    """A filter ready for the kernel but for the process id.

    Args:
        code: instructions, 8 bytes each.
        own_pid_offsets: where the process id goes.

    """

    code: bytes
    own_pid_offsets: tuple[int, ...]

    def install(self, pid: int) -> None:
        """Bind this process and all its threads to come; needs no_new_privs."""
        code = bytearray(self.code)
        for offset in self.own_pid_offsets:
            struct.pack_into("=I", code, offset, pid)
        buffer = ctypes.create_string_buffer(bytes(code), len(code))
        program = ctypes.create_string_buffer(
            struct.pack("@HP", len(code) // INSTRUCTION_BYTES, ctypes.addressof(buffer))
        )
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program))


def build_filter(architecture: Architecture | None = None) -> Filter:
    """Assemble the filter for an architecture, this machine's by default."""
    audit_number, calls = architecture or this_architecture()
    program: list[Instruction] = [
        (LOAD, 0, 0, ARCHITECTURE_OFFSET),
        (IF_EQUAL, 1, 0, audit_number),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER_OFFSET),
        (IF_AT_LEAST, 0, 1, X32_CALLS),
        (RETURN, 0, 0, KILL_PROCESS),
    ]
    for name in ALWAYS_ALLOWED:
        if name in calls:
            program += _rule(calls[name], [(RETURN, 0, 0, ALLOW)])
    for name, block in _conditions().items():
        if name in calls:
            program += _rule(calls[name], block)
    program.append((RETURN, 0, 0, ERRNO | errno.EPERM))
    offsets = tuple(
        index * INSTRUCTION_BYTES + 4 for index, instruction in enumerate(program) if instruction[3] == OWN_PID
    )
    return Filter(b"".join(struct.pack("=HBBI", *instruction) for instruction in program), offsets)


def _conditions() -> dict[str, list[Instruction]]:
    return {
        "openat": _without_bits(2, WRITING_FLAGS, errno.EACCES),
        "open": _without_bits(1, WRITING_FLAGS, errno.EACCES),
        "fcntl": _one_of(1, DESCRIPTOR_COMMANDS),
        "ioctl": _one_of(1, TERMINAL_AND_BLOCKING, errno.ENOTTY),
        "clone": _thread_only(),
        "clone3": [(RETURN, 0, 0, ERRNO | errno.ENOSYS)],  # its flags are out of reach; libc then falls back to clone
        "kill": _signal_to_oneself(1),
        "tgkill": _signal_to_oneself(2),
        "prctl": _one_of(0, NAMING_OPTIONS),
        "socketpair": _one_of(0, (AF_UNIX,)),
        "prlimit64": _ask_own_limits(),
    }


def _rule(number: int, block: list[Instruction]) -> list[Instruction]:
    """Run a block, which always returns, for one system call; the others jump over it."""
    return [(IF_EQUAL, 0, len(block), number), *block]


def _argument(index: int) -> Instruction:
    return (LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * index)  # the low half: every argument looked at has 32 bits


def _one_of(index: int, values: Iterable[int], refusal: int = errno.EPERM) -> list[Instruction]:
    wanted = list(values)
    tests = [(IF_EQUAL, len(wanted) - place, 0, value) for place, value in enumerate(wanted)]
    return [_argument(index), *tests, (RETURN, 0, 0, ERRNO | refusal), (RETURN, 0, 0, ALLOW)]


def _without_bits(index: int, bits: int, refusal: int) -> list[Instruction]:
    return [_argument(index), (IF_ANY_BIT, 0, 1, bits), (RETURN, 0, 0, ERRNO | refusal), (RETURN, 0, 0, ALLOW)]


def _signal_to_oneself(signal_index: int) -> list[Instruction]:
    """Any but SIGKILL: a run that is killed was killed from outside, and that is told apart from its own doing."""
    refuse = (RETURN, 0, 0, ERRNO | errno.EPERM)
    return [
        _argument(0),
        (IF_EQUAL, 1, 0, OWN_PID),
        refuse,
        _argument(signal_index),
        (IF_EQUAL, 0, 1, SIGKILL),
        refuse,
        (RETURN, 0, 0, ALLOW),
    ]


def _ask_own_limits() -> list[Instruction]:
    """Limits may be read; setting them changes nothing and succeeds, for programs that raise their stack."""
    set_high_half = (LOAD, 0, 0, ARGUMENTS_OFFSET + 8 * 2 + 4)
    return [
        _argument(0),
        (IF_EQUAL, 2, 0, 0),
        (IF_EQUAL, 1, 0, OWN_PID),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
        _argument(2),
        (IF_ANY_BIT, 3, 0, 0xFFFFFFFF),
        set_high_half,
        (IF_ANY_BIT, 1, 0, 0xFFFFFFFF),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, ERRNO),
    ]


def _thread_only() -> list[Instruction]:
    refuse = (RETURN, 0, 0, ERRNO | errno.EPERM)
    return [
        _argument(0),
        (IF_ANY_BIT, 0, 1, CLONE_NEW_NAMESPACES),
        refuse,
        (IF_ANY_BIT, 0, 1, CLONE_THREAD),
        (RETURN, 0, 0, ALLOW),
        refuse,
    ]
