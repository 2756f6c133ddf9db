"""Small attacks that must fail, and a program that must not; each prints `held`, or what it got."""

from dataclasses import dataclass

__all__ = ["PROBES", "Probe"]

ALWAYS = ("strong", "landlock", "weak")
LOCKED = ("strong", "landlock")
PROBE_WALL_SECONDS = 20.0


@dataclass(frozen=True)
class Probe:
    """One program and what must come of it.

    Args:
        name: what it tries.
        program: Python source; gets `hello` on stdin.
        status: how the run must end.
        modes: in which it is part of the self-test.
        wall_seconds: its wall time.

    """

    name: str
    program: str
    status: str = "ok"
    modes: tuple[str, ...] = LOCKED
    wall_seconds: float = PROBE_WALL_SECONDS


def _attempts(statements: str) -> str:
    """Write a program that makes each attempt, one a line, and expects each to raise OSError."""
    lines = ["import os, socket", "got = []"]
    for attempt in statements.strip().splitlines():
        lines += ["try:", f"    {attempt}", f"    got.append({attempt!r})", "except OSError:", "    pass"]
    return "\n".join([*lines, "print(got or 'held')"])


CONNECT = """
socket.socket(socket.AF_INET)
socket.socket(socket.AF_INET6)
socket.socket(socket.AF_UNIX)
socket.socket(socket.AF_NETLINK)
"""
READ = """
open('/etc/passwd')
open('/proc/self/environ')
open(os.path.expanduser('~/.bashrc'))
os.listdir('/')
os.listdir('/root')
"""
WRITE = """
open('/tmp/pacs-probe', 'w')
open('/dev/shm/pacs-probe', 'w')
open('/var/tmp/pacs-probe', 'w')
open('pacs-probe', 'w')
os.mkdir('/tmp/pacs-probe')
os.chmod(os.__file__, 0o777)
os.memfd_create('pacs-probe')
"""
START = """
os.fork()
os.posix_spawn('/bin/true', ['true'], {})
"""
EXECUTE = """
os.execv('/bin/true', ['true'])
os.execv('/usr/bin/env', ['env'])
"""
SIGNAL = """
os.kill(os.getppid(), 0)
os.kill(1, 0)
os.kill(-1, 0)
"""
KERNEL = """
import ctypes, platform
call = ctypes.CDLL(None, use_errno=True).syscall
# ptrace mount unshare setns bpf perf_event_open keyctl io_uring_setup userfaultfd memfd_create process_vm_readv
# chroot setuid chmod seccomp
numbers = {"x86_64": (101, 165, 272, 308, 321, 298, 250, 425, 323, 319, 310, 161, 105, 90, 317),
           "aarch64": (117, 40, 97, 268, 280, 241, 219, 425, 282, 279, 270, 51, 146, 52, 277)}[platform.machine()]
print([number for number in numbers if call(number, 0, 0, 0, 0, 0) != -1] or 'held')
"""
DESCRIPTORS = """
import os
got = []
for number in range(3, 1024):
    try:
        os.fstat(number)
        got.append(number)
    except OSError:
        pass
print(got or 'held')
"""
ENVIRONMENT = """
import os
print([name for name in os.environ if name.split('_')[0] not in ('PYTHONHASHSEED', 'MALLOC', 'OMP', 'OPENBLAS', 'PWD',
                                                                 'LC')] or 'held')
"""
THREADS = """
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
print('held' if len(threads) < 64 else len(threads))
"""
MEMORY = """
try:
    got = len(bytearray(1 << 40))
except MemoryError:
    got = 'held'
print(got)
"""

PROBES = (
    Probe("run a program", "import math\nprint('held' if input() == 'hello' and math.gcd(4, 6) == 2 else 'no')",
          modes=ALWAYS),
    Probe("open a connection", _attempts(CONNECT)),
    Probe("read files", _attempts(READ)),
    Probe("write files", _attempts(WRITE)),
    Probe("start a process", _attempts(START)),
    Probe("execute a file", _attempts(EXECUTE)),
    Probe("signal others", _attempts(SIGNAL)),
    Probe("ask the kernel for more", KERNEL),
    Probe("find descriptors", DESCRIPTORS, modes=ALWAYS),
    Probe("find the service's environment", ENVIRONMENT, modes=ALWAYS),
    Probe("start many threads", THREADS, modes=ALWAYS),
    Probe("use much memory", MEMORY, modes=ALWAYS),
    Probe("print without end", "print('held')\nwhile True: print(' ' * 1000)", "output_limit", ALWAYS),
    Probe("compute without end", "print('held', flush=True)\nwhile True: pass", "cpu_limit", ALWAYS),
    Probe("sleep without end", "import time\nprint('held', flush=True)\ntime.sleep(1000)", "wall_limit", ALWAYS, 2.0),
)  # fmt: skip
