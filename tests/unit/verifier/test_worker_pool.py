import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pacs.errors import BadInput, DeadlineExceeded, ServiceFailed
from services.verifier.checkers.worker_pool import WorkerPool
from services.verifier.sandbox.inside.landlock import landlock_version

pytestmark = pytest.mark.anyio

FAKE = "tests.unit.verifier.fake_worker"
UNWALLED = "tests.unit.verifier.unwalled_worker"
ROOT = Path(__file__).parents[3]


@pytest.fixture
async def pool():
    pool = WorkerPool(FAKE, size=2, cpu_seconds=0.2)
    yield pool
    pids = pool.pids
    await pool.close()
    assert not any(is_running(pid) for pid in pids)


def exists(pid):
    return Path(f"/proc/{pid}").exists()


def is_running(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def status_of(pid):
    return Path(f"/proc/{pid}/status").read_text()


async def eventually(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {condition.__name__}"
        await asyncio.sleep(0.02)


def echo(pool, text="hello"):
    return pool.request({"do": "echo", "text": text})


async def test_answers_and_keeps_its_workers(pool):
    first, second = await echo(pool, "a"), await echo(pool, "b\n\u2028é")
    assert (first["text"], second["text"]) == ("a", "b\n\u2028é")
    assert first["pid"] == second["pid"]
    assert pool.pids == (first["pid"],)


async def test_runs_no_more_workers_than_its_size_and_mixes_no_answers_up(pool):
    replies = await asyncio.gather(*(echo(pool, str(i)) for i in range(50)))
    assert [reply["text"] for reply in replies] == [str(i) for i in range(50)]
    assert len({reply["pid"] for reply in replies}) <= 2
    assert len(pool.pids) <= 2


async def test_a_large_request_passes(pool):
    text = "x" * 50_000
    assert (await echo(pool, text))["text"] == text


@pytest.mark.parametrize("deed", ["spin", "sleep"])
async def test_a_worker_past_its_deadline_is_killed_and_replaced(pool, deed):
    victim = (await echo(pool))["pid"]
    with pytest.raises(DeadlineExceeded, match="CPU time" if deed == "spin" else "wall time"):
        await pool.request({"do": deed}, cpu_seconds=0.05)
    assert (await echo(pool))["pid"] != victim
    await eventually(lambda: not is_running(victim))


async def test_a_busy_worker_does_not_hold_up_the_other(pool):
    spinning = asyncio.create_task(pool.outcome({"do": "spin"}, cpu_seconds=1.0))
    replies = await asyncio.gather(*(echo(pool, str(i)) for i in range(10)))
    assert len(replies) == 10
    assert (await spinning)["status"] == "timeout"


async def test_a_worker_that_dies_is_replaced_and_the_request_tried_again(pool):
    victim = (await echo(pool))["pid"]
    assert (await pool.request({"do": "exit_first", "pid": victim}))["status"] == "ok"


@pytest.mark.parametrize("deed", ["exit", "hoard"])
async def test_a_request_that_kills_two_workers_is_an_error(pool, deed):
    with pytest.raises(ServiceFailed, match="ended before it answered"):
        await pool.request({"do": deed}, cpu_seconds=10)
    assert (await pool.outcome({"do": deed}, cpu_seconds=10))["status"] == "error"
    assert (await echo(pool))["text"] == "hello"


async def test_an_idle_worker_that_was_killed_is_not_asked(pool):
    victim = (await echo(pool))["pid"]
    os.kill(victim, signal.SIGKILL)
    assert (await echo(pool))["pid"] != victim


async def test_what_a_worker_prints_or_reads_cannot_disturb_the_conversation(pool):
    assert await pool.request({"do": "print"}) == {"id": 1, "status": "ok", "read": ""}
    assert (await echo(pool))["text"] == "hello"


async def test_an_exception_is_an_error_and_the_worker_lives_on(pool):
    before = (await echo(pool))["pid"]
    reply = await pool.request({"do": "raise"})
    assert (reply["status"], reply["detail"]) == ("error", "RuntimeError")
    assert (await echo(pool))["pid"] == before


async def test_workers_inherit_no_environment(pool, monkeypatch):
    monkeypatch.setenv("PACS_TOKEN", "secret")
    names = (await pool.request({"do": "environment"}))["names"]
    assert set(names) <= {"PYTHONPATH", "LC_ALL", "LC_CTYPE", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}


async def test_a_cancelled_request_leaves_no_worker_out_of_step(pool):
    victim = (await echo(pool))["pid"]
    request = asyncio.create_task(pool.request({"do": "sleep"}, cpu_seconds=10))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert (await echo(pool, "after"))["text"] == "after"
    await eventually(lambda: not is_running(victim))


async def test_close_ends_busy_workers_and_those_that_wait():
    pool = WorkerPool(FAKE, size=1, cpu_seconds=10)
    await echo(pool)
    (pid,) = pool.pids
    waiting = [asyncio.create_task(pool.outcome({"do": "sleep"})) for _ in range(3)]
    await asyncio.sleep(0)
    await pool.close()
    assert not exists(pid)
    assert [(await task)["status"] for task in waiting] == ["error"] * 3
    with pytest.raises(ServiceFailed, match="closed"):
        await echo(pool)
    await pool.close()


async def test_a_module_that_does_not_start_is_an_error_that_names_it(capfd):
    pool = WorkerPool("tests.unit.verifier.no_such_worker", size=1)
    with pytest.raises(ServiceFailed, match="no_such_worker"):
        await pool.request({})
    await pool.close()
    assert "No module named" in capfd.readouterr().err


@pytest.mark.parametrize(("size", "cpu_seconds"), [(0, 1.0), (1, 0.0)])
async def test_a_pool_that_cannot_work_is_refused(size, cpu_seconds):
    with pytest.raises(BadInput, match=f"size={size}"):
        WorkerPool(FAKE, size, cpu_seconds)


SERVICE = f"""
import asyncio
from services.verifier.checkers.worker_pool import WorkerPool

async def main():
    pool = WorkerPool({FAKE!r}, size=1, cpu_seconds=600)
    await pool.request({{"do": "echo", "text": ""}})
    print(pool.pids[0], flush=True)
    await pool.request({{"do": "spin"}})

asyncio.run(main())
"""


def start_and_kill_a_service():
    with subprocess.Popen([sys.executable, "-c", SERVICE], cwd=ROOT, stdout=subprocess.PIPE, text=True) as service:
        worker = int(service.stdout.readline())
        assert is_running(worker)
        service.kill()
    return worker


async def test_a_service_that_is_killed_takes_its_workers_along():
    worker = start_and_kill_a_service()
    await eventually(lambda: not is_running(worker))


@pytest.mark.skipif(landlock_version() == 0, reason="needs a kernel with Landlock")
async def test_a_worker_can_neither_write_nor_read_nor_connect_nor_start_anything(pool, tmp_path):
    path = tmp_path / "file"
    path.write_text("a secret")
    assert (await pool.request({"do": "attack", "path": str(path)}))["got"] == []
    assert path.read_text() == "a secret"
    status = status_of(pool.pids[0])
    assert "NoNewPrivs:\t1" in status
    assert "Seccomp:\t2" in status
    assert "CapEff:\t0000000000000000" in status


async def test_behind_its_walls_a_worker_still_imports(pool):
    assert (await pool.request({"do": "import"}))["text"] == "wave"


async def test_a_worker_without_its_walls_answers_nothing_unless_that_was_asked_for():
    walled, open_plan = WorkerPool(UNWALLED, size=1), WorkerPool(UNWALLED, size=1, walls=False)
    with pytest.raises(ServiceFailed, match=r"walls do not stand.*isolation: weak"):
        await walled.start()
    assert (await walled.outcome({"do": "echo", "text": ""}))["status"] == "error"
    await open_plan.start()
    assert (await open_plan.request({"do": "echo", "text": "hello"}))["text"] == "hello"
    await walled.close()
    await open_plan.close()


async def test_the_replacement_of_a_slow_worker_starts_before_the_deadline(pool):
    victim = (await echo(pool))["pid"]
    spinning = asyncio.create_task(pool.outcome({"do": "spin"}, cpu_seconds=3.0))
    await eventually(lambda: len(pool.pids) == 2)
    spare = next(pid for pid in pool.pids if pid != victim)
    assert not spinning.done()
    assert (await spinning)["status"] == "timeout"
    assert (await echo(pool))["pid"] == spare


async def test_time_in_which_this_process_could_not_look_is_not_the_workers(pool):
    await echo(pool)
    asked = asyncio.create_task(pool.request({"do": "echo", "text": "late"}, cpu_seconds=0.1))
    await asyncio.sleep(0)
    time.sleep(3)  # noqa: ASYNC251  # longer than the wall cap: somebody else's hostile megabyte
    assert (await asked)["text"] == "late"
