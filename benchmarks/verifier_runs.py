"""How fast the sandbox runs programs, beside `subprocess` with `python -I`; part of `verifier.py`.

Both run the same small program (read two numbers, print their sum) in turn, in blocks, so that a busy machine is as
busy for the one as for the other. Each is measured one run at a time (latency) and several at once (throughput).
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from pacs.runtime.config import SandboxSection
from services.verifier.sandbox.sandbox import Sandbox

PROGRAM = "a, b = map(int, input().split())\nprint(a + b)"
STDIN, STDOUT = b"1 2\n", b"3\n"
COMMAND = (sys.executable, "-I", "-c", PROGRAM)
BLOCKS = 5
WARM_UP = 3

Run = Callable[[Sandbox], Awaitable[None]]


@dataclass(frozen=True)
class RunMeasurement:
    method: str
    runs: int
    at_once: int
    runs_per_second: float
    p50_milliseconds: float
    p99_milliseconds: float


async def in_sandbox(sandbox: Sandbox) -> None:
    result = await sandbox.run(PROGRAM, STDIN)
    assert (result.status, result.stdout) == ("ok", STDOUT), result


async def in_subprocess(_: Sandbox) -> None:
    process = await asyncio.create_subprocess_exec(*COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    output = (await process.communicate(STDIN))[0]
    assert output == STDOUT


async def latencies(run: Run, sandbox: Sandbox, runs: int) -> list[float]:
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        await run(sandbox)
        seconds.append(time.perf_counter() - started)
    return seconds


async def runs_a_second(run: Run, sandbox: Sandbox, runs: int, at_once: int) -> float:
    free = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with free:
            await run(sandbox)

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(runs)))
    return runs / (time.perf_counter() - started)


def figures(method: str, seconds: list[float], rates: list[float], at_once: int) -> RunMeasurement:
    ordered = sorted(seconds)
    return RunMeasurement(
        method=method,
        runs=len(ordered),
        at_once=at_once,
        runs_per_second=sorted(rates)[len(rates) // 2],
        p50_milliseconds=ordered[len(ordered) // 2] * 1e3,
        p99_milliseconds=ordered[int(len(ordered) * 0.99)] * 1e3,
    )


async def measure_runs(section: SandboxSection, runs: int) -> list[RunMeasurement]:
    """Measure `runs` runs of either kind, in `BLOCKS` blocks, with as many at once as the section has slots."""
    sandbox = Sandbox(section)
    await sandbox.start()
    contestants: dict[str, Run] = {f"pacs, {sandbox.isolation}": in_sandbox, "subprocess, python -I": in_subprocess}
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    block = max(1, runs // BLOCKS)
    try:
        for _ in range(BLOCKS):
            for name, run in contestants.items():
                await latencies(run, sandbox, WARM_UP)
                seconds[name] += await latencies(run, sandbox, block)
                rates[name].append(await runs_a_second(run, sandbox, block, section.slots))
    finally:
        await sandbox.close()
    return [figures(name, seconds[name], rates[name], section.slots) for name in contestants]
