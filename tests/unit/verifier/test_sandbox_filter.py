"""The system call filter, run by a small interpreter for both architectures, one of which is never this machine's."""

import errno
import re
import struct
from pathlib import Path

import pytest

from services.verifier.sandbox.inside.seccomp import (
    ALLOW,
    ERRNO,
    IF_ANY_BIT,
    IF_AT_LEAST,
    IF_EQUAL,
    KILL_PROCESS,
    LOAD,
    RETURN,
    build_filter,
)
from services.verifier.sandbox.inside.syscalls import ALWAYS_ALLOWED, ARCHITECTURES

PID = 4321
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
EPERM, ENOSYS, EACCES = ERRNO | errno.EPERM, ERRNO | errno.ENOSYS, ERRNO | errno.EACCES


def decide(architecture, number, *arguments, audit=None):
    """What the kernel would do with one call (Documentation/networking/filter.rst)."""
    audit_number, _ = ARCHITECTURES[architecture]
    built = build_filter(ARCHITECTURES[architecture])
    code = bytearray(built.code)
    for offset in built.own_pid_offsets:
        struct.pack_into("=I", code, offset, PID)
    words = [argument & (2**64 - 1) for argument in (*arguments, *[0] * (6 - len(arguments)))]
    data = struct.pack("=iIQ6Q", number, audit_number if audit is None else audit, 0, *words)
    accumulator, place = 0, 0
    while True:
        operation, if_true, if_false, value = struct.unpack_from("=HBBI", code, place * 8)
        place += 1
        if operation == LOAD:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif operation == RETURN:
            return value
        else:
            tests = {IF_EQUAL: accumulator == value, IF_AT_LEAST: accumulator >= value}
            held = bool(accumulator & value) if operation == IF_ANY_BIT else tests[operation]
            place += if_true if held else if_false


@pytest.fixture(params=sorted(ARCHITECTURES))
def architecture(request):
    return request.param


@pytest.fixture
def call(architecture):
    calls = ARCHITECTURES[architecture][1]
    return lambda name, *arguments: decide(architecture, calls[name], *arguments)


def test_numbers_are_the_kernel_s(architecture):
    header = HEADERS[architecture]
    if not header.is_file():
        pytest.skip(f"needs {header}: apt-get install linux-libc-dev")
    found = {m[1]: int(m[2]) for m in re.finditer(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())}
    found.setdefault("newfstatat", found.get("fstatat"))
    calls = ARCHITECTURES[architecture][1]
    assert {name: found.get(name) for name in calls} == calls


def test_another_architecture_and_the_x32_calls_are_fatal(architecture):
    assert decide(architecture, 0, audit=0x40000003) == KILL_PROCESS
    assert decide(architecture, 0x40000000 + 57) == KILL_PROCESS


def test_the_allowed_calls_are_allowed_and_every_other_number_is_not(architecture):
    calls = ARCHITECTURES[architecture][1]
    allowed = {calls[name] for name in ALWAYS_ALLOWED if name in calls}
    looked_at = {
        calls[name]
        for name in ("openat", "open", "fcntl", "ioctl", "clone", "kill", "tgkill", "prctl", "socketpair", "prlimit64")
        if name in calls
    }
    for number in range(600):
        if number in looked_at:
            continue
        expected = ALLOW if number in allowed else ENOSYS if number == calls["clone3"] else EPERM
        assert decide(architecture, number) == expected, number


def test_files_may_be_opened_for_reading_only(call):
    assert call("openat", -100, 0, 0) == ALLOW
    assert call("openat", -100, 0, 0o2000000) == ALLOW  # O_CLOEXEC
    for flags in (1, 2, 0o100, 0o1000, 0o20200000):
        assert call("openat", -100, 0, flags) == EACCES


def test_clone_makes_threads_only(call):
    thread = 0x3D0F00
    assert call("clone", thread) == ALLOW
    assert call("clone", 17) == EPERM  # fork
    assert call("clone", 0x4111) == EPERM  # vfork
    assert call("clone", thread | 0x10000000) == EPERM  # a user namespace
    assert call("clone3", 0, 88) == ENOSYS


def test_signals_go_to_oneself_and_never_kill(call):
    assert call("kill", PID, 10) == ALLOW
    assert call("tgkill", PID, PID + 1, 6) == ALLOW
    for other in (0, 1, -1, PID + 1, -PID):
        assert call("kill", other, 10) == EPERM
        assert call("tgkill", other, PID, 10) == EPERM
    assert call("kill", PID, 9) == EPERM
    assert call("tgkill", PID, PID, 9) == EPERM


def test_limits_are_read_and_never_changed(call):
    assert call("prlimit64", 0, 3, 0, 0x7F0000000000) == ALLOW
    assert call("prlimit64", PID, 3, 0, 1) == ALLOW
    assert call("prlimit64", 1, 3, 0, 1) == EPERM
    for new in (0x1000, 0x7F0000000000, 0x100000000):
        assert call("prlimit64", 0, 3, new) == ERRNO  # says that it succeeded, and does nothing


def test_the_rest_is_told_by_one_argument(call):
    assert call("fcntl", 1, 3) == ALLOW
    assert call("fcntl", 1, 1031, 1 << 20) == EPERM  # F_SETPIPE_SZ
    assert call("ioctl", 0, 0x5401) == ALLOW
    assert call("ioctl", 0, 0x5412) == ERRNO | errno.ENOTTY  # TIOCSTI types into a terminal
    assert call("prctl", 15) == ALLOW
    assert call("prctl", 38) == EPERM
    assert call("prctl", 4, 1) == EPERM
    assert call("socketpair", 1, 1) == ALLOW
    assert call("socketpair", 2, 1) == EPERM
