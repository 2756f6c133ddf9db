"""Our own comparisons for the Reasoning Gym families whose scorers give full score to answers that are wrong.

Each takes the answer and the entry and says whether the answer is right; one that cannot be read is wrong. For some
families it is enough that the answer says as many numbers as the gold: their scorers read the first and stop.
"""

import ast
import cmath
import json
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

__all__ = ["RULES", "hedges", "is_right"]

MAX_CHARACTERS = 2000
PROBABILITY = re.compile(r"[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})(e[+-]?\d{1,3}|/\d{1,40})?", re.IGNORECASE)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
UNSIGNED = re.compile(r"\d+(?:\.\d+)?")
COMPLEX_TOLERANCE = 1e-9
PROBABILITY_TOLERANCE = Fraction(1, 10_000)  # the scorer's
RELATIVE_TOLERANCE = Fraction(1, 1000)  # so that 0 is not the probability 1/32768
PUZZLE24_TARGET = 24

Entry = Mapping[str, Any]


def is_right(family: str, answer: str, entry: Entry) -> bool:
    """Judge by the rule of a family in `RULES`.

    Raises:
        KeyError: the entry lacks what the rule reads.

    """
    try:
        return len(answer) <= MAX_CHARACTERS and RULES[family](answer.strip(), entry)
    except (ValueError, ArithmeticError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False


def hedges(family: str, answer: str, entry: Entry) -> bool:
    """Say whether the answer names numbers after the one that the family's scorer reads: 3/4 or 5/6."""
    task = TASKS_WITH_ONE_ANSWER.get(family)
    if task is None or task not in ("any", entry["metadata"].get("task_type")):
        return False
    return len(UNSIGNED.findall(answer)) != len(UNSIGNED.findall(entry["answer"]))


def _coin_flip(answer: str, entry: Entry) -> bool:
    """A prefix of the probability is not the probability."""
    given, gold = _fraction(answer), _fraction(entry["answer"])
    return abs(given - gold) <= min(PROBABILITY_TOLERANCE, RELATIVE_TOLERANCE * gold)


def _fraction(text: str) -> Fraction:
    if not PROBABILITY.fullmatch(text):
        raise ValueError("not a number")
    return Fraction(text)


def _complex_arithmetic(answer: str, entry: Entry) -> bool:
    """What is not a number is at no distance."""
    given = _complex(answer)
    golds = (_complex(entry["answer"]), complex(*entry["metadata"]["result"]))
    return cmath.isfinite(given) and any(
        cmath.isclose(given, gold, rel_tol=COMPLEX_TOLERANCE, abs_tol=COMPLEX_TOLERANCE) for gold in golds
    )


def _complex(text: str) -> complex:
    return complex(text.replace(" ", "").lower().strip("()").replace("i", "j"))


def _countdown(answer: str, entry: Entry) -> bool:
    """All numbers, no others, each once, and exactly the target; a comment uses none."""
    metadata = entry["metadata"]
    return _uses(answer, metadata["numbers"], metadata["target"])


def _puzzle24(answer: str, entry: Entry) -> bool:
    """The puzzle's own numbers, and 24 itself: not 24.7."""
    return _uses(answer, entry["metadata"]["numbers"], PUZZLE24_TARGET)


def _uses(text: str, numbers: list[int], target: int) -> bool:
    used: list[int] = []
    value = _arithmetic(ast.parse(text, mode="eval").body, used)
    return "#" not in text and sorted(used) == sorted(numbers) and value == target


def _arithmetic(node: ast.expr, used: list[int]) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        value = _arithmetic(node.operand, used)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
        return ARITHMETIC[type(node.op)](_arithmetic(node.left, used), _arithmetic(node.right, used))
    raise ValueError("only integers, + - * / and parentheses")


ARITHMETIC: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}


def _figlet_font(answer: str, entry: Entry) -> bool:
    """Ten right letters of a longer word are not the word."""
    return answer.replace(" ", "").lower() == str(entry["answer"]).strip().lower()


def _game_of_life(answer: str, entry: Entry) -> bool:
    """Of the right shape too: rows beyond the grid's are wrong."""
    return bool(json.loads(answer) == json.loads(entry["answer"]))


def _game_of_life_halting(answer: str, entry: Entry) -> bool:
    """The word, not whether there is one: every text but the empty one is true."""
    return answer.lower() == str(entry["answer"]).lower()


def _gsm_symbolic(answer: str, entry: Entry) -> bool:
    """One number with its sign, whatever is around it: not the first of several."""
    numbers = NUMBER.findall(answer)
    return len(numbers) == 1 and _decimal(numbers[0]) == _decimal(entry["answer"])


def _letter_jumble(answer: str, entry: Entry) -> bool:
    """Nothing after the last word."""
    return answer.lower() == str(entry["answer"]).strip().lower()


def _word_sorting(answer: str, entry: Entry) -> bool:
    """All words in their order, and none after them."""
    return [word.strip() for word in answer.split(",")] == list(entry["metadata"]["sorted_words"])


def _number_sorting(answer: str, entry: Entry) -> bool:
    """The numbers themselves: the scorer's tolerance is 1 a number, and NaN is within it."""
    given = json.loads(answer.replace("'", '"'), parse_float=str, parse_int=str, parse_constant=str)
    return isinstance(given, list) and list(_decimals(given)) == list(_decimals(ast.literal_eval(entry["answer"])))


def _decimals(values: list[Any]) -> Iterator[Decimal]:
    for value in values:
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            raise TypeError("not a number")
        yield _decimal(str(value))


def _decimal(text: str) -> Decimal:
    try:
        number = Decimal(text.replace(",", ""))
    except InvalidOperation:
        raise ValueError("not a number") from None
    if not number.is_finite():
        raise ValueError("not a finite number")
    return number


RULES: dict[str, Callable[[str, Entry], bool]] = {
    "coin_flip": _coin_flip,
    "complex_arithmetic": _complex_arithmetic,
    "countdown": _countdown,
    "figlet_font": _figlet_font,
    "game_of_life": _game_of_life,
    "game_of_life_halting": _game_of_life_halting,
    "gsm_symbolic": _gsm_symbolic,
    "letter_jumble": _letter_jumble,
    "number_sorting": _number_sorting,
    "puzzle24": _puzzle24,
    "word_sorting": _word_sorting,
}

TASKS_WITH_ONE_ANSWER = {"advanced_geometry": "orthocenter", "fraction_simplification": "any", "time_intervals": "date"}
