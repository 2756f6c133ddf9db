"""How fast the verifier is: labels a second beside math-verify, and runs a second beside `subprocess`.

    python benchmarks/verifier.py [DATA] [--labels 200] [--runs 300] [--json FILE]

Without DATA, a folder of JSON lines, the answers are made up and the run takes a minute. Every method gets the same
texts, each with one box. math-verify runs in one process with its own alarm, as in the paper's reward, and in a pool of
as many processes as the checker has workers.
"""

import argparse
import asyncio
import json
import multiprocessing
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from surroundings import surroundings
from verifier_items import Item, data_sets
from verifier_runs import RunMeasurement, measure_runs

from pacs.runtime.config import SandboxSection
from services.verifier.checkers.math import MathChecker

WORKERS = 2
AT_ONCE = 64
WARM_UP = [("x+1", r"so \boxed{1+x}"), (r"\frac{\pi}{2}", r"so \boxed{\pi/2}"), ("(1,2)", r"so \boxed{(1, 3)}")] * 2
PACKAGES = ("pacs-rlvr", "math-verify", "latex2sympy2_extended", "sympy")

Outcomes = tuple[list[tuple[bool, float]], float]


@dataclass(frozen=True)
class LabelMeasurement:
    items: str
    method: str
    labels: int
    correct: int
    labels_per_second: float
    p50_milliseconds: float
    p99_milliseconds: float


def reference(item: Item) -> tuple[bool, float]:
    """One label the usual way: parse, parse, verify, with math-verify's own alarm."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    started = time.perf_counter()
    gold, completion = item
    expected = parse(rf"\boxed{{{gold}}}", [LatexExtractionConfig()])
    given = parse(completion, [ExprExtractionConfig(), LatexExtractionConfig()])
    return verify(expected, given), time.perf_counter() - started


def in_one_process(items: Sequence[Item]) -> Outcomes:
    for item in WARM_UP:
        reference(item)
    started = time.perf_counter()
    outcomes = [reference(item) for item in items]
    return outcomes, time.perf_counter() - started


def in_a_pool(items: Sequence[Item]) -> Outcomes:
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        pool.map(reference, WARM_UP * WORKERS, chunksize=1)
        started = time.perf_counter()
        outcomes = pool.map(reference, items, chunksize=4)
        return outcomes, time.perf_counter() - started


def ours(items: Sequence[Item]) -> Outcomes:
    return asyncio.run(_ours(items))


async def _ours(items: Sequence[Item]) -> Outcomes:
    checker = MathChecker(workers=WORKERS)
    free = asyncio.Semaphore(AT_ONCE)

    async def label(item: Item) -> tuple[bool, float]:
        async with free:
            judgement = await checker.check(item[1], item[0], {})
            return judgement.status == "ok", judgement.seconds

    try:
        await asyncio.gather(*(label(item) for item in WARM_UP * WORKERS))
        started = time.perf_counter()
        outcomes = await asyncio.gather(*(label(item) for item in items))
        return outcomes, time.perf_counter() - started
    finally:
        await checker.close()


METHODS: dict[str, Callable[[Sequence[Item]], Outcomes]] = {
    f"pacs, {WORKERS} workers": ours,
    "math-verify, one process": in_one_process,
    f"math-verify, pool of {WORKERS}": in_a_pool,
}


def measure_labels(name: str, items: Sequence[Item]) -> list[LabelMeasurement]:
    found = []
    for method, run in METHODS.items():
        outcomes, seconds = run(items)
        times = sorted(1000 * taken for _, taken in outcomes)
        found.append(
            LabelMeasurement(
                items=name,
                method=method,
                labels=len(items),
                correct=sum(correct for correct, _ in outcomes),
                labels_per_second=len(items) / seconds,
                p50_milliseconds=times[len(times) // 2],
                p99_milliseconds=times[min(len(times) - 1, len(times) * 99 // 100)],
            )
        )
    return found


def bubblewrap_version() -> str | None:
    found = shutil.which("bwrap")
    return subprocess.run([found, "--version"], capture_output=True, text=True).stdout.split()[-1] if found else None


def show_labels(measurements: Sequence[LabelMeasurement]) -> None:
    print("| items | method | labels | right | labels/s | times slower | p50 ms | p99 ms |")
    print("|---" * 8 + "|")
    for m in measurements:
        first = next(o for o in measurements if o.items == m.items)
        times = "" if m is first else f"{first.labels_per_second / m.labels_per_second:.1f}"
        print(
            f"| {m.items if m is first else ''} | {m.method} | {m.labels} | {m.correct} | {m.labels_per_second:.0f} "
            f"| {times} | {m.p50_milliseconds:.2f} | {m.p99_milliseconds:.1f} |"
        )


def show_runs(measurements: Sequence[RunMeasurement]) -> None:
    print(f"\n| method | runs | runs/s, {measurements[0].at_once} at once | p50 ms | p99 ms |")
    print("|---" * 5 + "|")
    for m in measurements:
        print(
            f"| {m.method} | {m.runs} | {m.runs_per_second:.0f} | {m.p50_milliseconds:.1f} | {m.p99_milliseconds:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", type=Path, help="folder with completions.jsonl and math500.jsonl")
    parser.add_argument("--labels", type=int, default=200, help="items of each set")
    parser.add_argument("--runs", type=int, default=300, help="sandbox runs, and as many of the subprocess")
    parser.add_argument("--isolation", default="auto", choices=["auto", "strong", "landlock", "weak"])
    parser.add_argument("--json", type=Path, help="file for the figures, with machine, versions and date")
    options = parser.parse_args()
    around = {**surroundings(PACKAGES), "bubblewrap": bubblewrap_version()}
    labels = []
    for name, items in data_sets(options.data).items():
        labels += measure_labels(name, random.Random(0).sample(items, min(options.labels, len(items))))
    runs = asyncio.run(measure_runs(SandboxSection(isolation=options.isolation, slots=WORKERS), options.runs))
    show_labels(labels)
    show_runs(runs)
    if options.json:
        report = {"surroundings": around, "labels": [asdict(m) for m in labels], "runs": [asdict(m) for m in runs]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
