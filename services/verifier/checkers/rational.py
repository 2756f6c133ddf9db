r"""The fast path of mathematics: equal text, and exact comparison of rational numbers, without floats or a parser.

`None` means that the question is not decidable here, never that the answer is wrong.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

from services.verifier.checkers.canonical import canonical_text, compact_text
from services.verifier.checkers.guard import MAX_CHARACTERS
from services.verifier.checkers.policy import MathPolicy

__all__ = ["RationalNumber", "half_unit", "parse_rational", "same_rational", "same_text", "significant_digits"]

MAX_DIGITS = 500  # int() is quadratic in the digits; no answer in the public problem sets has more
MAX_EXPONENT = 500

SEPARATOR = r"(?:,|\{,\}|\\, ?)"
UNSIGNED = rf"(?:(?:[0-9]{{1,3}}(?:{SEPARATOR}[0-9]{{3}})+|[0-9]+)(?:\.[0-9]*)?|\.[0-9]+)"
SIGNED = rf"[+-]? ?{UNSIGNED}"
TIMES = r"(?:\\times|\\cdot|×|·|\*)"
EXPONENT = r"(?:\{ ?([+-]? ?[0-9]{1,4}) ?\}|([0-9]))"


def _argument(name: str) -> str:
    r"""An argument of `\frac`: in braces, or a single digit."""
    return rf" ?(?:\{{ ?(?P<{name}>{SIGNED}) ?\}}|(?P<{name}_digit>[0-9]))"


LATEX_FRACTION = rf"\\frac{_argument('over')}{_argument('under')}"
DECIMAL = re.compile(UNSIGNED)
SLASH = re.compile(rf"(?P<over>{UNSIGNED}) ?/ ?(?P<under>{SIGNED})")
FRACTION = re.compile(LATEX_FRACTION)
MIXED = re.compile(rf"(?P<whole>[0-9]+) ?{LATEX_FRACTION}")
MIXED_SLASH = re.compile(r"(?P<whole>[0-9]+) (?P<over>[0-9]+) ?/ ?(?P<under>[0-9]+)")
POWER_OF_TEN = re.compile(rf"(?:(?P<factor>{UNSIGNED}) ?{TIMES} ?)?10 ?\^ ?{EXPONENT}")
E_NOTATION = re.compile(rf"(?P<factor>{UNSIGNED})[eE]([+-]?[0-9]{{1,4}})()")

CURRENCY = re.compile(r"(?:\\text ?\{ ?\\?\$ ?\}|\\?\$) ?")
SIGN = re.compile(r"[+-] ?")
PERCENT = re.compile(r" ?\\?%$")

DEFAULT_POLICY = MathPolicy()


@dataclass(frozen=True)
class RationalNumber:
    """A rational number and how it was written.

    Args:
        value: exact, the percent sign not applied.
        percent: written with a percent sign.
        grouped: written with commas between groups of three digits.
        decimals: digits after the point; 0 without one.
        quotient: written as a fraction.

    """

    value: Fraction
    percent: bool = False
    grouped: bool = False
    decimals: int = 0
    quotient: bool = False


def same_text(gold: str, prediction: str) -> bool:
    """Say whether both are the same text but for typography; text too long to normalise is not."""
    if max(len(gold), len(prediction)) > MAX_CHARACTERS:
        return False
    text = compact_text(canonical_text(gold))
    return bool(text) and text == compact_text(canonical_text(prediction))


def same_rational(gold: str, prediction: str, policy: MathPolicy = DEFAULT_POLICY) -> bool | None:
    """Compare two texts as rational numbers; None where one of them is not one."""
    expected = parse_rational(gold)
    given = parse_rational(prediction) if expected is not None else None
    if expected is None or given is None:
        return None
    return _applied(expected) == _applied(given) or _agree(expected, given, policy)


def parse_rational(text: str) -> RationalNumber | None:
    r"""Read an integer, decimal, fraction, mixed number or power of ten, with sign, `%`, `$` and thousands marks."""
    if len(text) > MAX_CHARACTERS or sum(character.isdigit() for character in text) > MAX_DIGITS:
        return None
    body = canonical_text(text)
    without_percent = PERCENT.sub("", body)
    unsigned, negative = _split_sign(without_percent)
    number = _parse_unsigned(unsigned)
    if number is None:
        return None
    return RationalNumber(
        value=-number.value if negative else number.value,
        percent=without_percent != body,
        grouped=number.grouped,
        decimals=number.decimals,
        quotient=number.quotient,
    )


def _split_sign(body: str) -> tuple[str, bool]:
    """Take sign and currency off the front, in either order."""
    body = _without_currency(body)
    sign = SIGN.match(body)
    if sign is None:
        return body, False
    return _without_currency(body[sign.end() :]), sign.group().startswith("-")


def _without_currency(body: str) -> str:
    mark = CURRENCY.match(body)
    return body[mark.end() :] if mark else body


def _parse_unsigned(body: str) -> RationalNumber | None:
    if DECIMAL.fullmatch(body):
        decimals = len(body.partition(".")[2])
        return RationalNumber(_decimal(body), grouped="," in body.replace("{,}", ""), decimals=decimals)
    if match := FRACTION.fullmatch(body) or SLASH.fullmatch(body):
        return _quotient(match)
    if match := MIXED.fullmatch(body) or MIXED_SLASH.fullmatch(body):
        return _mixed(match)
    if match := POWER_OF_TEN.fullmatch(body) or E_NOTATION.fullmatch(body):
        return _scientific(match)
    return None


def _decimal(text: str) -> Fraction:
    digits = re.sub(rf"{SEPARATOR}| ", "", text)
    whole, _, decimals = digits.partition(".")
    return Fraction(int(whole + decimals or "0"), 10 ** len(decimals))


def _signed(text: str) -> Fraction:
    magnitude = _decimal(text.lstrip("+-"))
    return -magnitude if text.startswith("-") else magnitude


def _quotient(match: re.Match[str]) -> RationalNumber | None:
    parts = match.groupdict()
    over = _signed(parts["over"] or parts.get("over_digit") or "")
    under = _signed(parts["under"] or parts.get("under_digit") or "")
    return RationalNumber(over / under, quotient=True) if under else None


def _mixed(match: re.Match[str]) -> RationalNumber | None:
    part = _quotient(match)
    if part is None or not 0 < part.value < 1:
        return None
    return RationalNumber(int(match["whole"]) + part.value, quotient=True)


def _scientific(match: re.Match[str]) -> RationalNumber | None:
    exponent = int((match.group(2) or match.group(3)).replace(" ", ""))
    if abs(exponent) > MAX_EXPONENT:
        return None
    factor = _decimal(match["factor"]) if match["factor"] else Fraction(1)
    return RationalNumber(factor * Fraction(10) ** exponent)


def _applied(number: RationalNumber) -> Fraction:
    return number.value / 100 if number.percent else number.value


def _agree(expected: RationalNumber, given: RationalNumber, policy: MathPolicy) -> bool:
    """Unequal numbers that the policy lets pass: 50 and 50 %, a fraction that the gold rounds, and the reverse."""
    if policy.percent == "either" and expected.percent != given.percent and expected.value == given.value:
        return True
    if expected.percent != given.percent:
        return False
    if given.quotient and 0 < policy.rounded_gold_decimals <= expected.decimals:
        return abs(expected.value - given.value) <= half_unit(expected.decimals)
    if expected.quotient and policy.approximation_digits and given.decimals:
        enough = significant_digits(given.value, given.decimals) >= policy.approximation_digits
        return enough and abs(expected.value - given.value) <= half_unit(given.decimals)
    return False


def half_unit(decimals: int) -> Fraction:
    """Half a unit of the last digit of a number with so many decimals."""
    return Fraction(1, 2 * 10**decimals)


def significant_digits(value: Fraction, decimals: int) -> int:
    """Digits of a decimal number from its first that is not zero."""
    return len(str(abs(value.numerator * 10**decimals // value.denominator)))
