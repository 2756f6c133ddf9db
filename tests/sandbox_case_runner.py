"""Judge every program of a case file: `python -m tests.sandbox_case_runner ISOLATION CASES`; prints one JSON object."""

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path

from pacs.runtime.config import SandboxSection
from services.verifier.checkers.code import CodeChecker

SLOTS = 4
QUIET_SECONDS = 10.0


def descendants(pid):
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def open_descriptors():
    return len(os.listdir("/proc/self/fd"))


def _peak_mib() -> int:
    """Peak memory of this program alone: `ru_maxrss` would begin with that of the test runner that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


async def judge_all(isolation, rows):
    checker = CodeChecker(
        SandboxSection(isolation=isolation, slots=SLOTS, cpu_seconds=1, wall_seconds=4, memory_bytes=2**29)
    )
    await checker.start()
    quiet = len(descendants(os.getpid()))
    most = quiet

    async def watch():
        nonlocal most
        while True:
            most = max(most, len(descendants(os.getpid())))
            await asyncio.sleep(0.05)

    watching = asyncio.create_task(watch())
    cpu = time.process_time()
    labels = await asyncio.gather(
        *(checker.check(row["code"], "", {"tests": row["tests"], "extract": "whole"}) for row in rows)
    )
    cpu = time.process_time() - cpu
    watching.cancel()
    left = len(descendants(os.getpid())) - quiet
    mode = checker.sandbox.isolation
    await checker.close()
    return {
        "isolation": mode,
        "user": os.getuid(),
        "labels": {row["id"]: [j.status, j.method] for row, j in zip(rows, labels, strict=True)},
        "judge_cpu_seconds": cpu,
        "judge_peak_mib": _peak_mib(),
        "most_processes": most - quiet,
        "left_processes": left,
        "left_after_close": len(descendants(os.getpid())),
    }


def main():
    isolation, cases = sys.argv[1:]
    rows = [json.loads(line) for line in Path(cases).read_text().splitlines()]
    before = open_descriptors()
    report = asyncio.run(judge_all(isolation, rows))
    report |= {"left_descriptors": open_descriptors() - before, "threads": threading.active_count()}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
