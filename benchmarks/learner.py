"""What an optimizer step costs: the learner, groups padded whole as the published code has them, and TRL's GRPO.

    python benchmarks/learner.py [--quick] [--model FOLDER] [--json FILE]

Every method takes its steps on the same model and the same sequences, which are sampled beforehand; only how many of
them make a group differs. Each has a process of its own for each group size; all of one size take turns, so that a busy
machine is as busy for each. Needs the `dev` extra (TRL).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from surroundings import surroundings

WORKER = Path(__file__).with_name("learner_worker.py")
METHODS = ("whole groups", "pacs", "pacs, two passes", "pacs, one pass", "TRL")
BOTH_QUANTILES = 2.326 + 1.282  # of the normal distribution: the 99th percentile and the 10th
SEQUENCES = 64
PACKAGES = ("torch", "transformers", "deepspeed", "trl", "accelerate", "numpy")


def log_normal_lengths(median: float, spread: float, count: int) -> list[int]:
    """Its quantiles, in an order that mixes them; the 99th percentile is `spread` times the 10th."""
    normal = statistics.NormalDist(np.log(median), np.log(spread) / BOTH_QUANTILES)
    lengths = [max(2, round(np.exp(normal.inv_cdf((n + 0.5) / count)))) for n in range(count)]
    return [int(length) for length in np.random.default_rng(0).permutation(lengths)]


class Worker:
    """A process that takes one method's steps when asked."""

    def __init__(self, spec: dict[str, Any], folder: Path) -> None:
        name = f"{spec['method']}-{spec.get('group_size', 0)}".replace(" ", "-").replace(",", "")
        spec_file = folder / f"{name}.json"
        spec_file.write_text(json.dumps(spec))
        self._log = (folder / f"{name}.log").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, WORKER, spec_file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(spec["threads"]), "TOKENIZERS_PARALLELISM": "false"},
        )

    def answer(self) -> dict[str, Any]:
        for line in self._process.stdout:
            if line.startswith("@"):
                return json.loads(line[1:])
        self._log.seek(0)
        sys.exit(f"a worker ended early: …{self._log.read()[-3000:]}")

    def step(self) -> dict[str, Any]:
        self._process.stdin.write("step\n")
        self._process.stdin.flush()
        return self.answer()

    def end(self) -> dict[str, Any]:
        self._process.stdin.close()
        last = self.answer()
        self.wait()
        return last

    def wait(self) -> None:
        if self._process.wait(120):
            self.answer()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(spec: dict[str, Any], repeats: int, folder: Path) -> list[dict[str, Any]]:
    """Of every method at one group size, in turns."""
    workers = {name: Worker({**spec, "method": name}, folder) for name in METHODS}
    try:
        sizes = {name: worker.answer() for name, worker in workers.items()}
        for worker in workers.values():
            worker.step()
        rounds = [{name: worker.step() for name, worker in workers.items()} for _ in range(repeats)]
        peaks = {name: worker.end()["peak_bytes"] for name, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.kill()
    return [
        {
            "method": name,
            "group_size": spec["group_size"],
            **sizes[name],
            "padding": 1 - sizes[name]["tokens"] / sizes[name]["padded_tokens"],
            "seconds": [taken[name]["seconds"] for taken in rounds],
            "cpu_seconds": [taken[name]["cpu_seconds"] for taken in rounds],
            "tokens_per_second": sizes[name]["tokens"] / statistics.median(t[name]["seconds"] for t in rounds),
            "peak_bytes": peaks[name],
            "parts": median_parts([taken[name]["parts"] for taken in rounds]),
        }
        for name in METHODS
    ]


def median_parts(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(parts[name] for parts in rounds) for name in rounds[0]}


def show(measured: list[dict[str, Any]]) -> None:
    """CPU seconds are the process's own: they do not grow with what else the machine does."""
    print("| G | method | padding | s/step | CPU s/step | tokens/s | times whole groups' | by CPU s | peak MB |")
    print("|---" * 9 + "|")
    for m in measured:
        whole = next(o for o in measured if o["group_size"] == m["group_size"] and o["method"] == "whole groups")
        seconds, cpu = (statistics.median(m[name]) for name in ("seconds", "cpu_seconds"))
        name = m["method"] + (" *" if m["chosen"] else "")
        print(
            f"| {m['group_size']} | {name} | {m['padding']:.0%} | {seconds:.2f} "
            f"| {cpu:.2f} | {m['tokens_per_second']:.0f} | {statistics.median(whole['seconds']) / seconds:.2f} "
            f"| {statistics.median(whole['cpu_seconds']) / cpu:.2f} | {m['peak_bytes'] / 1e6:.0f} |"
        )

    print("\n* what the learner chooses where it needs log-probs before it has coefficients")


def show_parts(measured: list[dict[str, Any]]) -> None:
    """Where the learner's time goes."""
    ours = [m for m in measured if m["method"].startswith("pacs")]
    print("\n| G | method |", " | ".join(ours[0]["parts"]), "| rest |")
    print("|---" * (3 + len(ours[0]["parts"])) + "|")
    for m in ours:
        total = statistics.median(m["seconds"])
        shares = [seconds / total for seconds in m["parts"].values()]
        print(f"| {m['group_size']} | {m['method']} |", " | ".join(f"{s:.0%}" for s in [*shares, 1 - sum(shares)]), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller model, shorter responses, G = 64, once")
    parser.add_argument("--model", type=Path, help="folder in Hugging Face format; without it a random one is made")
    parser.add_argument("--hidden", type=int, default=256, help="width of the random model")
    parser.add_argument("--layers", type=int, default=6, help="layers of the random model")
    parser.add_argument("--vocabulary", type=int, default=16384, help="of the random model")
    parser.add_argument("--median", type=float, default=32.0, help="median length of the responses, tokens")
    parser.add_argument("--spread", type=float, default=10.0, help="their 99th percentile over their 10th")
    parser.add_argument("--group-sizes", type=int, nargs="+", default=[8, 16, 32, 64])
    parser.add_argument("--repeats", type=int, default=3, help="steps of each method at each group size")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--microbatch-tokens", type=int, default=1024, help="the learner's budget, padded tokens")
    parser.add_argument("--trl-rows", type=int, default=8, help="TRL's per_device_train_batch_size")
    parser.add_argument("--json", type=Path, help="file for the figures, with machine, versions and date")
    options = parser.parse_args()
    if options.quick:
        options.median, options.vocabulary, options.group_sizes, options.repeats = 8.0, 2048, [64], 1
    spec = {
        "lengths": log_normal_lengths(options.median, options.spread, SEQUENCES),
        "sequences": SEQUENCES,
        "prompt_tokens": 8,
        **{name: getattr(options, name) for name in ("hidden", "layers", "vocabulary", "dtype", "threads")},
        **{name: getattr(options, name) for name in ("microbatch_tokens", "trl_rows")},
    }
    around = surroundings(PACKAGES)
    with tempfile.TemporaryDirectory() as folder:
        spec.update(folder=folder, model=str(options.model or Path(folder) / "model"))
        if options.model:
            spec["vocabulary"] = json.loads((options.model / "config.json").read_text())["vocab_size"]
        else:
            Worker({**spec, "method": "make"}, Path(folder)).wait()
        measured = [
            figures
            for size in options.group_sizes
            for figures in measure({**spec, "group_size": size}, options.repeats, Path(folder))
        ]
    show(measured)
    show_parts(measured)
    if options.json:
        spec = {**spec, "model": str(options.model or "random")}
        del spec["folder"]
        options.json.write_text(json.dumps({"machine": around, "spec": spec, "measured": measured}, indent=1) + "\n")


if __name__ == "__main__":
    main()
