r"""Inequalities in one variable that are solved as they stand, read as intervals: `1 < x \le 2` is `(1,2]`."""

import re
from dataclasses import dataclass

__all__ = ["Interval", "solved_relation"]

OPERATOR = re.compile(r"\\(?P<named>le|ge|neq)(?![a-zA-Z])|(?P<sign><=|>=|<|>)")
VARIABLE = re.compile(r"[a-zA-Z](?:_ ?\{?[a-zA-Z0-9]+\}?)?|\\(?:alpha|beta|gamma|delta|theta|lambda|mu|phi)")
NAMES = {"le": "<=", "ge": ">=", "neq": "!="}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
COMMAND = re.compile(r"\\[a-zA-Z]+")
OPEN_ENDED = (r"-\infty", r"\infty")


@dataclass(frozen=True)
class Interval:
    """An interval of the values of a variable; the ends are texts."""

    variable: str
    low: str
    high: str
    brackets: str


def solved_relation(text: str) -> tuple[Interval, ...] | None:
    """Read `x < a`, `a < x`, `a < x < b` with any of the signs, or `x ≠ a`; None for everything else."""
    signs = list(OPERATOR.finditer(text))
    if not 1 <= len(signs) <= 2 or "=" in OPERATOR.sub("", text) or "," in text:
        return None
    operators = [NAMES[sign["named"]] if sign["named"] else sign["sign"] for sign in signs]
    starts = [0, *(sign.end() for sign in signs)]
    ends = [*(sign.start() for sign in signs), len(text)]
    sides = [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    if not all(sides):
        return None
    return _between(sides, operators) if len(signs) == 2 else _half_line(sides, operators[0])


def _half_line(sides: list[str], operator: str) -> tuple[Interval, ...] | None:
    variable, bound = sides
    if not _isolates(variable, bound):
        bound, variable = sides
        operator = MIRRORED.get(operator, operator)
        if not _isolates(variable, bound):
            return None
    low, high = OPEN_ENDED
    if operator == "!=":
        return Interval(variable, low, bound, "()"), Interval(variable, bound, high, "()")
    if operator in ("<", "<="):
        return (Interval(variable, low, bound, "(" + _closing(operator)),)
    return (Interval(variable, bound, high, _opening(operator) + ")"),)


def _between(sides: list[str], operators: list[str]) -> tuple[Interval, ...] | None:
    left, variable, right = sides
    if not (_isolates(variable, left) and _isolates(variable, right)):
        return None
    if all(operator in ("<", "<=") for operator in operators):
        return (Interval(variable, left, right, _opening(operators[0]) + _closing(operators[1])),)
    if all(operator in (">", ">=") for operator in operators):
        return (Interval(variable, right, left, _opening(operators[1]) + _closing(operators[0])),)
    return None


def _isolates(variable: str, bound: str) -> bool:
    """Whether one side is a variable alone and the other does not hold it."""
    if VARIABLE.fullmatch(variable) is None:
        return False
    return variable not in (bound if variable.startswith("\\") else COMMAND.sub("", bound))


def _opening(operator: str) -> str:
    return "[" if "=" in operator else "("


def _closing(operator: str) -> str:
    return "]" if "=" in operator else ")"
