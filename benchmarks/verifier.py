"""How many labels a second: the verifier's math checker against math-verify as it is usually called.

    python benchmarks/verifier.py --data ../shared/data [--limit 400] [--json FILE]

Three sets: real completions with integer golds, LaTeX golds against a right and a wrong answer in another spelling, and
real completions as they come. Every method gets the same texts, each with one box. math-verify runs in one process with
its own alarm, as in the paper's reward, and in a pool of as many processes as the checker has workers.
"""

import argparse
import asyncio
import datetime
import importlib.metadata
import json
import multiprocessing
import os
import platform
import random
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from services.verifier.checkers.math import MathChecker

WORKERS = 2
AT_ONCE = 64
WARM_UP = [("x+1", r"so \boxed{1+x}"), (r"\frac{\pi}{2}", r"so \boxed{\pi/2}"), ("(1,2)", r"so \boxed{(1, 3)}")] * 2
INTEGER = re.compile(r"-?[0-9,]+")
FINAL_ANSWER = re.compile(r"A: *([^\n]*)\s*$")

Item = tuple[str, str]


@dataclass(frozen=True)
class Measurement:
    items: str
    method: str
    labels: int
    correct: int
    labels_per_second: float
    p50_milliseconds: float
    p99_milliseconds: float


def load(data: Path, name: str) -> list[dict[str, Any]]:
    path = data / f"{name}.jsonl"
    if not path.is_file():
        sys.exit(f"the benchmark needs {path}; give the folder with --data")
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def real_completions(data: Path) -> list[Item]:
    """Completions with their answer in a box: their own, the one they were given, or the last line's."""
    items = []
    for row in load(data, "completions"):
        text = row.get("completion_boxed") or row["completion"]
        if row["answer_format"] == "A: N":
            text = FINAL_ANSWER.sub(lambda match: rf"The final answer is $\\boxed{{{match[1]}}}$", text)
        if r"\boxed" in text:
            items.append((row["gold"], text))
    return items


def latex_answers(data: Path) -> list[Item]:
    golds = [row["answer"] for row in load(data, "math500") if not INTEGER.fullmatch(row["answer"])]
    wrong = golds[1:] + golds[:1]
    right = [
        (gold, rf"Hence \boxed{{ {gold.replace('frac', 'dfrac').replace('ddfrac', 'dfrac')} }}.") for gold in golds
    ]
    return right + [(gold, rf"Hence \boxed{{{other}}}.") for gold, other in zip(golds, wrong, strict=True)]


def chosen(items: Sequence[Item], limit: int) -> list[Item]:
    return random.Random(0).sample(list(items), min(limit, len(items)))


def reference(item: Item) -> tuple[bool, float]:
    """One label the usual way: parse, parse, verify, with math-verify's own alarm."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    started = time.perf_counter()
    gold, completion = item
    expected = parse(rf"\boxed{{{gold}}}", [LatexExtractionConfig()])
    given = parse(completion, [ExprExtractionConfig(), LatexExtractionConfig()])
    return verify(expected, given), time.perf_counter() - started


def in_one_process(items: Sequence[Item]) -> tuple[list[tuple[bool, float]], float]:
    for item in WARM_UP:
        reference(item)
    started = time.perf_counter()
    outcomes = [reference(item) for item in items]
    return outcomes, time.perf_counter() - started


def in_a_pool(items: Sequence[Item]) -> tuple[list[tuple[bool, float]], float]:
    with multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        pool.map(reference, WARM_UP * WORKERS, chunksize=1)
        started = time.perf_counter()
        outcomes = pool.map(reference, items, chunksize=4)
        return outcomes, time.perf_counter() - started


def ours(items: Sequence[Item]) -> tuple[list[tuple[bool, float]], float]:
    return asyncio.run(_ours(items))


async def _ours(items: Sequence[Item]) -> tuple[list[tuple[bool, float]], float]:
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


METHODS: dict[str, Callable[[Sequence[Item]], tuple[list[tuple[bool, float]], float]]] = {
    "pacs": ours,
    "math-verify, one process": in_one_process,
    f"math-verify, pool of {WORKERS}": in_a_pool,
}


def measure(name: str, items: Sequence[Item]) -> list[Measurement]:
    found = []
    for method, run in METHODS.items():
        outcomes, seconds = run(items)
        times = sorted(1000 * taken for _, taken in outcomes)
        found.append(
            Measurement(
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


def machine() -> dict[str, Any]:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "load_average_1m": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {
            name: importlib.metadata.version(name) for name in ("math-verify", "latex2sympy2_extended", "sympy")
        },
    }


def show(measurements: Sequence[Measurement]) -> None:
    print("| items | method | labels | right | labels/s | times slower | p50 ms | p99 ms |")
    print("|---" * 8 + "|")
    for m in measurements:
        fastest = next(o.labels_per_second for o in measurements if o.items == m.items and o.method == "pacs")
        times = f"{fastest / m.labels_per_second:.1f}" if m.method != "pacs" else ""
        print(
            f"| {m.items} | {m.method} | {m.labels} | {m.correct} | {m.labels_per_second:.0f} | {times} "
            f"| {m.p50_milliseconds:.2f} | {m.p99_milliseconds:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--limit", type=int, default=400, help="items of each set")
    parser.add_argument("--json", type=Path, help="file for the figures, with machine, versions and date")
    options = parser.parse_args()
    real = real_completions(options.data)
    sets = {
        "integer golds": [item for item in real if INTEGER.fullmatch(item[0])],
        "LaTeX golds": latex_answers(options.data),
        "real completions, mixed": real,
    }
    around = machine()
    measurements = [m for name, items in sets.items() for m in measure(name, chosen(items, options.limit))]
    show(measurements)
    if options.json:
        report = {"machine": around, "measurements": [asdict(m) for m in measurements]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
