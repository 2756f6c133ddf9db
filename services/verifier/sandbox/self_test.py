"""Probes at the start: small attacks that must fail, and a program that must not."""

import asyncio
from dataclasses import dataclass, replace

from pacs.errors import BadInput
from services.verifier.sandbox.runs import RunLimits, RunResult
from services.verifier.sandbox.zygote_link import ZygoteLink

__all__ = ["PROBES", "Probe", "self_test"]

ALWAYS = "strong landlock weak"
LOCKED = "strong landlock"
PROBE_USER = 1000  # beyond every slot
PROBE_CPU_SECONDS, PROBE_WALL_SECONDS = 1.0, 20.0
PROBE_OUTPUT_BYTES = 1 << 16


@dataclass(frozen=True)
class Probe:
    """One program and what must come of it.

    Args:
        name: what it tries.
        program: Python source; prints `held` where the wall held, or what it got.
        status: how the run must end.
        modes: in which it is part of the self-test.
        wall_seconds: its wall time.

    """

    name: str
    program: str
    status: str = "ok"
    modes: str = LOCKED
    wall_seconds: float = PROBE_WALL_SECONDS


def _attempts(*attempts: str, head: str = "import os") -> str:
    """A program that makes each attempt and expects each to raise OSError."""
    lines = [head, "got = []"]
    for attempt in attempts:
        lines += ["try:", f"    {attempt}", f"    got.append({attempt!r})", "except OSError:", "    pass"]
    return "\n".join([*lines, "print(got or 'held')"])


PROBES = (
    Probe("run a program", "import math\nprint('held' if input() == 'hello' and math.gcd(4, 6) == 2 else 'no')",
          modes=ALWAYS),
    Probe("open a connection", _attempts(
        *(f"socket.socket(socket.{family})" for family in ("AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK")),
        head="import socket")),
    Probe("read files", _attempts("open('/etc/passwd')", "open('/proc/self/environ')", "os.listdir('/')",
                                  "os.listdir('/root')", "open(os.path.expanduser('~/.bashrc'))")),
    Probe("write files", _attempts(*(f"open('{folder}/pacs-probe', 'w')" for folder in ("/tmp", "/dev/shm", "/var/tmp",
                                                                                      ".")),
                                   "os.mkdir('/tmp/pacs-probe')", "os.memfd_create('x')")),
    Probe("start a process", _attempts("os.fork()", "os.posix_spawn('/bin/true', ['true'], {})")),
    Probe("execute a file", _attempts("os.execv('/bin/true', ['true'])", "os.execv('/usr/bin/env', ['env'])")),
    Probe("signal others", _attempts("os.kill(os.getppid(), 0)", "os.kill(1, 0)", "os.kill(-1, 0)")),
    Probe("ask the kernel for more", """
import ctypes, platform
call = ctypes.CDLL(None, use_errno=True).syscall
names = {"x86_64": (101, 165, 272, 308, 321, 298, 250, 425, 323, 319, 310, 161, 105, 90, 157),
         "aarch64": (117, 40, 97, 268, 280, 241, 219, 425, 282, 279, 270, 51, 146, 52, 167)}[platform.machine()]
got = [number for number in names if call(number, 0, 0, 0, 0, 0) != -1]
print(got or 'held')
"""),
    Probe("find descriptors", """
import os
got = []
for number in range(3, 1024):
    try:
        os.fstat(number)
        got.append(number)
    except OSError:
        pass
print(got or 'held')
""", modes=ALWAYS),
    Probe("start many threads", """
import threading
threading.stack_size(32768)
go = threading.Event()
threads = []
try:
    while len(threads) < 200:
        threads.append(threading.Thread(target=go.wait))
        threads[-1].start()
except RuntimeError:
    threads.pop()
go.set()
print('held' if 1 <= len(threads) < 64 else len(threads))
""", modes=ALWAYS),
    Probe("use much memory", """
try:
    got = len(bytearray(1 << 40))
except MemoryError:
    got = 'held'
print(got)
""", modes=ALWAYS),
    Probe("print without end", "print('held')\nwhile True: print(' ' * 1000)", "output_limit", ALWAYS),
    Probe("compute without end", "print('held', flush=True)\nwhile True: pass", "cpu_limit", ALWAYS),
    Probe("sleep without end", "import time\nprint('held', flush=True)\ntime.sleep(1000)", "wall_limit", ALWAYS, 0.3),
)  # fmt: skip


async def self_test(link: ZygoteLink, limits: RunLimits) -> None:
    """Run every probe of the link's mode.

    Args:
        link: a zygote that serves nobody else yet.
        limits: memory and threads as configured; the probes' own are smaller otherwise.

    Raises:
        BadInput: a probe ended otherwise than it must.
        RunLost: the sandbox failed to run one.

    """
    probes = [probe for probe in PROBES if link.isolation in probe.modes.split()]
    results = await asyncio.gather(*(_run(link, probe, place, limits) for place, probe in enumerate(probes)))
    for probe, result in zip(probes, results, strict=True):
        held = result.stdout.split(b"\n")[0].strip() == b"held"
        if result.status != probe.status or not held:
            raise BadInput(
                f"the sandbox's self-test must hold in mode {link.isolation}, but the probe {probe.name!r} did not: "
                f"status {result.status} (must be {probe.status}), output {result.stdout[:200]!r}, "
                f"errors {result.stderr[-200:]!r}; no program is run."
            )


async def _run(link: ZygoteLink, probe: Probe, place: int, limits: RunLimits) -> RunResult:
    own = replace(
        limits,
        cpu_seconds=PROBE_CPU_SECONDS,
        wall_seconds=probe.wall_seconds,
        output_bytes=PROBE_OUTPUT_BYTES,
    )
    run = link.begin(probe.program, b"hello\n", "program", own, PROBE_USER + place)
    try:
        return await run.result()
    finally:
        run.close()
