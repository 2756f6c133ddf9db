r"""Shows that two expressions differ, in microseconds: most wrong answers never reach a computer-algebra system.

A small evaluator reads what is unmistakable (numbers, letters, `+ - * / ^`, `\frac`, `\sqrt`, `\pi`, `\ln`, sine,
cosine and tangent) and computes both sides in floats at two points. A difference far beyond what rounding can do is a
difference. Everything else stays open: equality is never concluded here, and what might be read in two ways is not
read.
"""

import math
import re
from collections.abc import Callable

__all__ = ["evaluates", "surely_differ"]

TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)|(?P<letter>[a-zA-Z])|\\(?P<command>[a-zA-Z]+)|(?P<sign>[-+*/^(){}]))"
)
TIMES = frozenset({"cdot", "times"})
FUNCTIONS: dict[str, Callable[[float], float]] = {"sin": math.sin, "cos": math.cos, "tan": math.tan, "ln": math.log}
OPERATORS = frozenset("+-*/^)}")
CLOSING = {"(": ")", "{": "}"}
MAX_TOKENS = 200
MAX_ANGLE = 1e6  # beyond it a float does not hold the angle well enough
IMAGINARY = frozenset("iI")
GOLDEN = 0.6180339887498949
POINTS = (0.0, 0.29)

RELATIVE = 1e-6
ROUNDING = 1e-11  # of the largest intermediate value: cancellation leaves nothing certain below that


class _Open(Exception):  # it ends the reading, it is no error
    """The text holds what this evaluator does not read."""


def surely_differ(gold: str, prediction: str, tolerance: float = 0.0) -> bool:
    """Say whether two canonical expressions certainly have different values.

    Args:
        tolerance: differences up to this are none, in absolute terms: a gold may be rounded.

    """
    for shift in POINTS:
        expected, given = _value(gold, shift), _value(prediction, shift)
        if expected is None or given is None:
            return False
        (a, size_a), (b, size_b) = expected, given
        if abs(a - b) > tolerance + RELATIVE * max(abs(a), abs(b)) + ROUNDING * max(size_a, size_b):
            return True
    return False


def evaluates(text: str) -> bool:
    """Say whether a canonical text is an expression with one value, and so no tuple, set or pair of signs."""
    return _value(text, POINTS[0]) is not None


def _value(text: str, shift: float) -> tuple[float, float] | None:
    """The value, and the largest that was met on the way; None where the text stays open."""
    try:
        evaluation = _Evaluation(_tokens(text), shift)
        return evaluation.whole(), evaluation.largest
    except (_Open, ArithmeticError, ValueError):  # a root of a negative number, a division by zero, an overflow
        return None


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None or len(tokens) >= MAX_TOKENS:
            raise _Open
        kind = match.lastgroup or ""
        tokens.append((kind, match[kind]))
        at = match.end()
    return tokens


class _Evaluation:
    """A recursive descent that computes as it reads."""

    def __init__(self, tokens: list[tuple[str, str]], shift: float) -> None:
        self._tokens = tokens
        self._shift = shift
        self._at = 0
        self.largest = 0.0

    def whole(self) -> float:
        value = self._sum()
        if self._at < len(self._tokens):
            raise _Open
        return value

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _take(self, sign: str) -> bool:
        taken = self._peek() == ("sign", sign)
        self._at += taken
        return taken

    def _met(self, value: float) -> float:
        if not math.isfinite(value):
            raise _Open
        self.largest = max(self.largest, abs(value))
        return value

    def _sum(self) -> float:
        value = self._signed_product()
        while self._peek() in (("sign", "+"), ("sign", "-")):
            value = self._met(value + self._signed_product())
        return value

    def _signed_product(self) -> float:
        if self._take("-"):
            return -self._product()
        self._take("+")
        return self._product()

    def _product(self) -> float:
        value, divided, number = self._power(), False, False
        while True:
            kind, text = self._peek()
            if (kind == "command" and text in TIMES) or text == "*":
                self._at += 1
                value, divided = self._met(value * self._power()), False
            elif text == "/":
                self._at += 1
                value, divided = self._met(value / self._power()), True
            elif kind == "end" or (kind == "sign" and text in OPERATORS):
                return value
            else:
                # `1/2x` has two readings, `2 3` none, and `2\frac{1}{3}` may be a mixed number.
                number = self._tokens[self._at - 1][0] == "number"
                if divided or kind == "number" or (number and text == "frac"):
                    raise _Open
                value = self._met(value * self._power())

    def _power(self) -> float:
        base = self._atom()
        if not self._take("^"):
            return base
        if self._peek() == ("sign", "-"):
            raise _Open
        exponent = self._atom()
        if self._peek() == ("sign", "^"):
            raise _Open
        value = base**exponent
        if isinstance(value, complex):
            raise _Open
        return self._met(value)

    def _atom(self) -> float:
        kind, text = self._peek()
        self._at += 1
        if kind == "number":
            return self._met(float(text))
        if kind == "letter":
            return self._letter(text)
        if kind == "sign" and text in CLOSING:
            value = self._sum()
            if not self._take(CLOSING[text]):
                raise _Open
            return value
        if kind == "command":
            return self._command(text)
        raise _Open

    def _letter(self, letter: str) -> float:
        if letter in IMAGINARY or self._peek() == ("sign", "("):  # f(x) is no product
            raise _Open
        if letter == "e":
            return self._met(math.e)
        # The parser tells no case apart either.
        return self._met(0.5 + (ord(letter.lower()) * GOLDEN + self._shift) % 1.9)

    def _command(self, name: str) -> float:
        if name == "pi":
            return self._met(math.pi)
        if name == "frac":
            over, under = self._argument(), self._argument()
            return self._met(over / under)
        if name == "sqrt":
            return math.sqrt(self._argument())
        if name in FUNCTIONS and self._peek()[1] in CLOSING:
            argument = self._atom()
            if abs(argument) > MAX_ANGLE or self._peek() == ("sign", "^"):
                raise _Open
            return self._met(FUNCTIONS[name](argument))
        raise _Open

    def _argument(self) -> float:
        r"""In braces, or one character: `\frac12` is a half."""
        kind, text = self._peek()
        if kind == "number" and len(text) > 1:
            if "." in text:
                raise _Open
            self._tokens[self._at : self._at + 1] = [("number", digit) for digit in text]
        return self._atom()
