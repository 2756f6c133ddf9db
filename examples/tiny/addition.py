"""Addition of two numbers of two or three digits, worked out digit by digit."""

import json
import random
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Problem", "draw", "draw_distinct", "is_correct", "write_rows"]

BOXED = re.compile(r"\\boxed\{([^{}]*)\}")


@dataclass(frozen=True)
class Problem:
    """One addition: what is asked, the worked solution that warm-up imitates, and the answer."""

    prompt: str
    solution: str
    answer: str


def _digit_trace(a: int, b: int) -> str:
    """Write the column sums, least significant first: `57+65` gives `7+5=12;5+6+1=12;`."""
    steps, carry = [], 0
    while a or b:
        total = a % 10 + b % 10 + carry
        steps.append(f"{a % 10}+{b % 10}{f'+{carry}' if carry else ''}={total};")
        carry, a, b = total // 10, a // 10, b // 10
    return "".join(steps)


def _draw_number(rng: random.Random) -> int:
    return rng.randrange(rng.choice((10, 100)), 1000)


def draw(rng: random.Random) -> Problem:
    """Draw one problem from the task's distribution."""
    a, b = _draw_number(rng), _draw_number(rng)
    answer = str(a + b)
    return Problem(f"{a}+{b}=", f"{_digit_trace(a, b)}\\boxed{{{answer}}}", answer)


def draw_distinct(rng: random.Random, count: int, *, exclude: Collection[str] = ()) -> list[Problem]:
    """Draw `count` problems whose prompts differ from one another and from those in `exclude`."""
    problems: dict[str, Problem] = {}
    while len(problems) < count:
        problem = draw(rng)
        if problem.prompt not in exclude:
            problems.setdefault(problem.prompt, problem)
    return list(problems.values())


def is_correct(completion: str, answer: str) -> bool:
    """Whether the last boxed expression of `completion` is `answer`."""
    boxed = BOXED.findall(completion)
    return bool(boxed) and boxed[-1].strip() == answer


def write_rows(path: Path, problems: Sequence[Problem]) -> None:
    """Write problems as JSON lines with the fields `id`, `prompt` and `answer`."""
    rows = (
        {"id": f"{path.stem}-{index:04d}", "prompt": problem.prompt, "answer": problem.answer}
        for index, problem in enumerate(problems)
    )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
