"""What `verifier.py` has judged: sets of (gold, completion), from a folder of data or made up."""

import json
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Item = tuple[str, str]

INTEGER = re.compile(r"-?[0-9,]+")
FINAL_ANSWER = re.compile(r"A: *([^\n]*)\s*$")
MADE_UP = (
    r"\frac{1}{2}", r"\frac{\sqrt{3}}{2}", r"2\sqrt{13}", r"\frac{\pi}{4}", r"(3, \frac{\pi}{2})", r"x^2-4x+3",
    r"\left(-\infty, 2\right]", r"[0,1) \cup (4,5)", r"\{1, 2, 3\}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
    r"3+4i", r"\frac{x+1}{x-1}", r"10\%", r"45^\circ", r"\log_2 3", r"e^{2\pi}", r"\sqrt[3]{5}", r"y = 2x + 3",
    r"-\frac{7}{12}", r"0.375", r"1, -2", r"\frac{9\sqrt{2}}{4}", r"5!", r"\binom{7}{3}",
)  # fmt: skip
INTEGERS_FOR_EACH = 9  # of the others in the mixed set: what real completions are like


def data_sets(data: Path | None) -> dict[str, list[Item]]:
    """Three sets: integer golds, golds that are no integers, and a mix of both as it comes."""
    if data is None:
        integers, latex = made_up_integers(), spelled_otherwise(MADE_UP)
        return {
            "made up, integer golds": integers,
            "made up, LaTeX golds": latex,
            "made up, mixed": integers[: INTEGERS_FOR_EACH * len(latex)] + latex,
        }
    real = real_completions(data)
    golds = [row["answer"] for row in load(data, "math500") if not INTEGER.fullmatch(row["answer"])]
    return {
        "real completions, integer golds": [item for item in real if INTEGER.fullmatch(item[0])],
        "MATH-500's golds that are no integers, right and wrong": spelled_otherwise(golds),
        "real completions, mixed": real,
    }


def load(data: Path, name: str) -> list[dict[str, Any]]:
    path = data / f"{name}.jsonl"
    if not path.is_file():
        sys.exit(f"the benchmark needs {path}; give another folder as DATA, or none for made-up items")
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


def spelled_otherwise(golds: Sequence[str]) -> list[Item]:
    """Every gold against itself in another spelling, and against its neighbour."""
    wrong = [*golds[1:], *golds[:1]]
    right = [
        (gold, rf"Hence \boxed{{ {gold.replace('frac', 'dfrac').replace('ddfrac', 'dfrac')} }}.") for gold in golds
    ]
    return right + [(gold, rf"Hence \boxed{{{other}}}.") for gold, other in zip(golds, wrong, strict=True)]


def made_up_integers() -> list[Item]:
    """Sums, two of three added rightly."""
    draw, items = random.Random(0), []
    for n in range(600):
        a, b = draw.randrange(10_000), draw.randrange(10_000)
        said = a + b if n % 3 else a + b + draw.choice((-10, -1, 1, 10))
        items.append((str(a + b), f"We add {a} and {b}: ${a} + {b} = {said}$.\nThe answer is $\\boxed{{{said}}}$."))
    return items
