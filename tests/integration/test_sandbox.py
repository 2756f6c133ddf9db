"""The sandbox itself: results, limits, failures of its own, and what it leaves."""

import asyncio
import os
import shutil
import signal
import threading
from dataclasses import replace

import pytest

from pacs.errors import BadInput, ServiceFailed
from pacs.runtime.config import SandboxSection
from pacs.testing import assert_eventually
from services.verifier.sandbox import command, self_test
from services.verifier.sandbox.inside.landlock import landlock_version
from services.verifier.sandbox.probes import Probe
from services.verifier.sandbox.sandbox import Sandbox
from tests.sandbox_case_runner import descendants, open_descriptors

pytestmark = pytest.mark.anyio


def section(isolation, **settings):
    return SandboxSection(**{"isolation": isolation, "slots": 2, "cpu_seconds": 1, "wall_seconds": 8, **settings})


@pytest.fixture(scope="module", params=["strong", "landlock"])
async def sandbox(request):
    if request.param == "strong" and shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap: apt-get install bubblewrap")
    if landlock_version() == 0:
        pytest.skip("needs a kernel with Landlock")
    box = Sandbox(section(request.param))
    await box.start()
    yield box
    await box.close()


async def test_a_run_gives_output_status_and_what_it_used(sandbox):
    result = await sandbox.run("import sys\nprint(input()[::-1])\nprint('oops', file=sys.stderr)", b"abc\n")
    assert (result.status, result.stdout, result.stderr) == ("ok", b"cba\n", b"oops\n")
    assert result.isolation == sandbox.isolation
    assert 0 < result.cpu_seconds < 1
    assert 2**20 < result.peak_bytes < 2**28


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("raise SystemExit", "ok"),
        ("raise SystemExit(0)", "ok"),
        ("raise SystemExit(3)", "runtime_error"),
        ("raise SystemExit('no')", "runtime_error"),
        ("1/0", "runtime_error"),
        ("def f(:", "runtime_error"),
        ("import os\nos._exit(70)", "runtime_error"),
        ("import os\nos.abort()", "signal"),
        ("print('x' * (1 << 22))", "output_limit"),
        ("import sys\nsys.stderr.write('x' * (1 << 22))", "output_limit"),
        ("while True: pass", "cpu_limit"),
        ("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", "cpu_limit"),
    ],
)
async def test_a_run_ends_as_the_program_did(sandbox, program, status):
    assert (await sandbox.run(program)).status == status


async def test_wall_time_ends_what_sleeps(sandbox):
    limits = replace(sandbox.limits, wall_seconds=0.5)
    result = await sandbox.run("import time\ntime.sleep(60)", limits=limits)
    assert result.status == "wall_limit"
    assert result.wall_seconds < 5


@pytest.mark.parametrize(
    "program",
    [
        "import asyncio\nprint(asyncio.run(asyncio.sleep(0, 'ok')))",
        "import sqlite3\nprint(sqlite3.connect(':memory:').execute(\"select 'ok'\").fetchone()[0])",
        "import threading\nt = threading.Thread(target=print, args=('ok',))\nt.start()\nt.join()",
        "import sys, threading\nthreading.stack_size(1 << 27)\nsys.setrecursionlimit(1 << 20)\n"
        "def f(n): return n and 1 + f(n - 1)\n"
        "t = threading.Thread(target=lambda: print('ok' if f(50_000) == 50_000 else ''))\nt.start()\nt.join()",
        "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (1 << 30, 1 << 30))\nprint('ok')",
        "import concurrent.futures as c\nprint(c.ThreadPoolExecutor(4).submit(lambda: 'ok').result())",
        "import hashlib, zlib, uuid, secrets, zoneinfo, ctypes, multiprocessing\nprint('ok')",
        "if __name__ == '__main__': print('ok')",
        "import atexit\natexit.register(print, 'ok')",
        "exec(\"print('ok')\")",
    ],
)
async def test_honest_programs_find_what_they_need(sandbox, program):
    result = await sandbox.run(program)
    assert (result.status, result.stdout) == ("ok", b"ok\n"), result.stderr


async def test_no_run_can_kill_itself_to_look_like_a_failure_of_the_sandbox(sandbox):
    result = await sandbox.run("import os\nos.kill(os.getpid(), 9)")
    assert result.status == "runtime_error"
    lowered = await sandbox.run(
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (0, 0))\nprint(sum(range(10**6)))"
    )
    assert (lowered.status, lowered.stdout) == ("ok", b"499999500000\n")


async def test_runs_share_nothing(sandbox):
    await sandbox.run("import math, builtins\nmath.pi = 3\nbuiltins.print = None")
    result = await sandbox.run("import math\nprint(math.pi > 3.1)")
    assert result.stdout == b"True\n"


async def test_the_environment_of_the_service_is_not_there(sandbox, monkeypatch):
    monkeypatch.setenv("PACS_TOKEN", "secret")
    result = await sandbox.run("import os\nprint(sorted(os.environ))")
    assert b"PACS" not in result.stdout
    assert b"HOME" not in result.stdout


async def test_a_cancelled_run_ends_and_frees_its_slot(sandbox):
    quiet = len(descendants(os.getpid()))
    sleeping = [asyncio.create_task(sandbox.run("import time\ntime.sleep(60)")) for _ in range(2)]
    await assert_eventually(lambda: len(descendants(os.getpid())) == quiet + 2)
    for task in sleeping:
        task.cancel()
    assert all(isinstance(r, asyncio.CancelledError) for r in await asyncio.gather(*sleeping, return_exceptions=True))
    assert len(descendants(os.getpid())) == quiet
    assert (await sandbox.run("print(1)")).status == "ok"


async def test_the_zygote_is_replaced_and_the_run_repeated(sandbox):
    run = asyncio.create_task(sandbox.run("import time\ntime.sleep(1)\nprint('done')"))
    quiet = sandbox.pid
    await assert_eventually(lambda: len(descendants(quiet)) >= 1)
    os.kill(quiet, signal.SIGKILL)
    assert (await run).stdout == b"done\n"
    assert sandbox.pid != quiet


async def test_three_failures_in_a_row_are_owned_up_to(sandbox):
    tries = []

    async def body(slot):
        tries.append(slot)
        os.kill(sandbox.pid, signal.SIGKILL)
        return await slot.begin("print(1)", replace(sandbox.limits, wall_seconds=5)).result()

    with pytest.raises(ServiceFailed, match="3 times in a row"):
        await sandbox.hold(body)
    assert len(tries) == 3
    assert (await sandbox.run("print(1)")).status == "ok"


@pytest.mark.parametrize("isolation", ["strong", "landlock", "weak"])
async def test_close_leaves_no_process_descriptor_or_thread(isolation):
    if isolation == "strong" and shutil.which("bwrap") is None:
        pytest.skip("needs bubblewrap: apt-get install bubblewrap")
    processes, descriptors, threads = len(descendants(os.getpid())), open_descriptors(), threading.active_count()
    box = Sandbox(section(isolation))
    sleeping = asyncio.create_task(box.run("import time\ntime.sleep(60)"))
    assert (await box.run("print(1)")).status == "ok"
    await box.close()
    await asyncio.gather(sleeping, return_exceptions=True)
    assert len(descendants(os.getpid())) == processes
    assert open_descriptors() == descriptors
    assert threading.active_count() == threads
    with pytest.raises(ServiceFailed, match="closed"):
        await box.run("print(1)")


async def test_weak_is_loud_and_in_every_result(caplog):
    box = Sandbox(section("weak"))
    result = await box.run("print(1)")
    await box.close()
    assert result.isolation == "weak"
    assert [r.levelname for r in caplog.records if "ISOLATION IS WEAK" in r.message] == ["CRITICAL"]


async def test_without_bubblewrap_strong_is_refused_and_auto_takes_landlock(monkeypatch, caplog):
    if landlock_version() == 0:
        pytest.skip("needs a kernel with Landlock")
    monkeypatch.setattr(command.shutil, "which", lambda _: None)
    box = Sandbox(section("strong"))
    with pytest.raises(BadInput, match="bubblewrap"):
        await box.run("print(1)")
    await box.close()
    box = Sandbox(section("auto"))
    assert (await box.run("print(1)")).isolation == "landlock"
    await box.close()
    assert "bubblewrap (bwrap) is not installed" in caplog.text


async def test_a_probe_that_gets_through_closes_the_sandbox_for_good(monkeypatch):
    monkeypatch.setattr(self_test, "PROBES", (Probe("leak", "print('got in')", modes=("weak",)),))
    processes = len(descendants(os.getpid()))
    box = Sandbox(section("weak"))
    for _ in range(2):
        with pytest.raises(BadInput, match="'leak'"):
            await box.run("print(1)")
    assert len(descendants(os.getpid())) == processes
    await box.close()
