r"""How large the numbers in an expression may become, from its text alone, before anything computes them.

`9^{9^{9^9}}` has nine characters and more digits than the universe has atoms. The estimate is an upper bound on the
decimal logarithm of the value; it never divides, subtracts or shrinks, so that numerators and denominators both count.
"""

import math
import re

__all__ = ["MAX_VALUE_DIGITS", "digits_at_most"]

MAX_VALUE_DIGITS = 7000
"""`5^{5^5}` and `2004!` fit; a tower of four nines does not. Roots of longer numbers take seconds by themselves."""

TOKEN = re.compile(
    r"\\(?P<command>[a-zA-Z]+)|(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)|(?P<power>\^|\*\*)|(?P<open>\\?\{|[(\[])"
    r"|(?P<close>\\?\}|[)\]])|(?P<factorial>!+)|(?P<plus>[+\-,;=<>&])|(?P<space>\s+)|(?P<other>\\.|.)",
    re.DOTALL,
)
TWO_ARGUMENTS = frozenset({"frac", "dfrac", "tfrac", "cfrac"})
CHOICES = frozenset({"binom", "dbinom", "tbinom"})
MAX_FACTORIALS = 4  # of the smallest number that grows, 3, the fourth is beyond all bounds
CONSTANTS = {"e": math.log10(math.e), "pi": math.log10(math.pi)}
LOG_TWO = math.log10(2)
TOO_LARGE = math.inf


def digits_at_most(text: str) -> float:
    """An upper bound on the digits of the largest number in the text; infinity where it is beyond all bounds.

    Linear in the text; its nesting must have been checked, as it recurses as deep.
    """
    return _Estimate([token for token in TOKEN.finditer(text) if not token["space"]]).sequence(inside=False)


class _Estimate:
    """One pass over the tokens, left to right; every method returns a decimal logarithm."""

    def __init__(self, tokens: "list[re.Match[str]]") -> None:
        self._tokens = tokens
        self._at = 0

    def sequence(self, *, inside: bool) -> float:
        """Terms up to the end of the group: a product is bounded by the sum of the logarithms, and so is a sum."""
        total = 0.0
        while (token := self._next()) is not None:
            if token["close"]:
                self._at += 1
                if inside:
                    break
            elif token["plus"]:
                self._at += 1
                total += LOG_TWO
            else:
                total += self._powered()
        return total

    def _next(self) -> "re.Match[str] | None":
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _powered(self) -> float:
        """A tower of atoms and what is written behind them; it binds from the right, and may lack its base."""
        token = self._next()
        tower = [0.0 if token is None or token["power"] else self._atom()]
        while (token := self._next()) is not None:
            if token["factorial"]:
                for _ in range(min(len(token["factorial"]), MAX_FACTORIALS)):
                    tower[-1] = _factorial(tower[-1])
            elif not token["power"]:
                break
            self._at += 1
            if token["power"]:
                tower.append(self._exponent())
        bound = tower.pop()
        while tower:
            bound = _power(tower.pop(), bound)
        return bound

    def _exponent(self) -> float:
        while (token := self._next()) is not None and token["plus"]:
            self._at += 1
        return 0.0 if token is None or token["close"] or token["power"] else self._atom()

    def _atom(self) -> float:
        token = self._tokens[self._at]
        self._at += 1
        if token["number"]:
            return _logarithm(token["number"])
        if token["open"]:
            return self.sequence(inside=True)
        if token["command"] in TWO_ARGUMENTS:
            return self._argument() + self._argument()
        if token["command"] in CHOICES:
            return _choose(self._argument(), self._argument())
        return CONSTANTS.get(token["command"] or token.group(), 0.0)

    def _argument(self) -> float:
        token = self._next()
        return 0.0 if token is None or token["close"] else self._atom()


def _logarithm(number: str) -> float:
    """Of a literal: its digits, so that decimals count too; exact for small ones, as they become exponents."""
    digits = number.replace(".", "").lstrip("0")
    if len(digits) > 15:
        return float(len(digits))
    return math.log10(max(float(number), 1.0))


def _value(logarithm: float) -> float:
    return 10.0**logarithm if logarithm < 300 else TOO_LARGE


def _power(base: float, exponent: float) -> float:
    # A base of 1 is a variable or unknown: two to the exponent bounds how often it is multiplied.
    return max(base, LOG_TWO) * _value(exponent)


def _factorial(base: float) -> float:
    return _value(base) * max(base, LOG_TWO)


def _choose(over: float, under: float) -> float:
    return min(_value(over) * LOG_TWO, _value(under) * over)
