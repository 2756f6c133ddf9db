"""How fast the sandbox runs programs, beside `subprocess` with `python -I`.

`python benchmarks/sandbox.py [--isolation MODE] [--json FILE]` prints a table.

Both run the same small program (read two numbers, print their sum) in turn, in blocks, so that a busy machine is as
busy for the one as for the other. Each is measured one run at a time (latency) and several at once (throughput).
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pacs.runtime.config import SandboxSection
from services.verifier.sandbox.sandbox import Sandbox

PROGRAM = "a, b = map(int, input().split())\nprint(a + b)"
STDIN, STDOUT = b"1 2\n", b"3\n"
COMMAND = (sys.executable, "-I", "-c", PROGRAM)

Run = Callable[[Sandbox], Awaitable[None]]


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


def figures(seconds: list[float], rates: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "runs": len(ordered),
        "min_ms": ordered[0] * 1e3,
        "p50_ms": ordered[len(ordered) // 2] * 1e3,
        "p99_ms": ordered[int(len(ordered) * 0.99)] * 1e3,
        "runs_per_second": sorted(rates)[len(rates) // 2],
    }


async def measure(isolation: Any, blocks: int, runs: int, at_once: int) -> dict[str, dict[str, float]]:
    sandbox = Sandbox(SandboxSection(isolation=isolation, slots=at_once))
    await sandbox.start()
    contestants: dict[str, Run] = {f"sandbox, {sandbox.isolation}": in_sandbox, "subprocess, python -I": in_subprocess}
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    try:
        for _ in range(blocks):
            for name, run in contestants.items():
                await latencies(run, sandbox, 3)  # warm
                seconds[name] += await latencies(run, sandbox, runs)
                rates[name].append(await runs_a_second(run, sandbox, runs, at_once))
    finally:
        await sandbox.close()
    return {name: figures(seconds[name], rates[name]) for name in contestants}


def surroundings() -> dict[str, Any]:
    load = os.getloadavg()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_average_1_minute": load[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isolation", default="auto", choices=["auto", "strong", "landlock", "weak"])
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--runs", type=int, default=60, help="a block and measurement")
    parser.add_argument("--at-once", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    measured = asyncio.run(measure(options.isolation, options.blocks, options.runs, options.at_once))
    print(f"{'':24} {'min ms':>8} {'p50 ms':>8} {'p99 ms':>8} {'runs/s':>8}   ({options.at_once} at once for runs/s)")
    for name, row in measured.items():
        print(f"{name:24} {row['min_ms']:8.1f} {row['p50_ms']:8.1f} {row['p99_ms']:8.1f} {row['runs_per_second']:8.0f}")
    if options.json:
        report = {"surroundings": surroundings(), "at_once": options.at_once, "measured": measured}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
