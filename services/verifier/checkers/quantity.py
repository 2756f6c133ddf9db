r"""What is written around a number: a unit, a degree sign, a base, a clock's or a ratio's colon."""

import re
from dataclasses import dataclass
from fractions import Fraction

from services.verifier.checkers.policy import MathPolicy
from services.verifier.checkers.rational import parse_rational
from services.verifier.checkers.units import UNITS, Unit, named_unit

__all__ = ["aligned", "same_in_base", "same_with_colons"]

DEGREES = re.compile(r"(?:\^ ?\{? ?\\circ ?\}?|\\text ?\{ ?(?:degrees?|deg) ?\}|(?<=[0-9]) ?degrees?)$")
WRAPPED_UNIT = re.compile(
    r"\\(?:text|mathrm|mbox|textrm|operatorname) ?\{(?P<unit>[^{}]*)\}(?: ?\^ ?\{? ?(?P<power>-?[0-9]) ?\}?)?$"
)
PLAIN_UNIT = re.compile(r"(?<=[0-9}) ])(?P<unit>[a-zA-Z]+(?: [a-zA-Z]+)*)(?: ?\^ ?\{? ?(?P<power>[23]) ?\}?)?$")
TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
BASE = re.compile(
    r"(?P<digits>(?=[A-F]*[0-9])[0-9A-F]+)_ ?(?:\{ ?(?P<base>[0-9]{1,3}|\\text ?\{[a-z]+\}) ?\}|(?P<digit>[0-9]))"
)
COLONS = re.compile(r"[0-9]{1,15}(?: ?: ?[0-9]{1,15})+")

SHORTEST_PLAIN_WORD = 3  # "9 apples" carries a unit, "2 x" a variable


@dataclass(frozen=True)
class Quantity:
    """A value and what it is measured in.

    Args:
        value: text without the unit.
        unit: None where there is none, or none that is known.
        degrees: whether a degree sign was there.

    """

    value: str
    unit: Unit | None = None
    degrees: bool = False


def aligned(gold: str, prediction: str, policy: MathPolicy) -> tuple[str, str] | None:
    """Two canonical scalars without their units, brought to the gold's unit; None where the units contradict."""
    expected, given = _quantity(gold), _quantity(prediction)
    if expected.degrees != given.degrees and policy.degrees == "either":
        if expected.degrees and r"\pi" in given.value:
            return _in_radians(expected.value), given.value
        if given.degrees and r"\pi" in expected.value:
            return expected.value, _in_radians(given.value)
    if expected.unit is None or given.unit is None or policy.units == "ignore":
        return expected.value, given.value
    if expected.unit.dimension != given.unit.dimension:
        return None
    factor = given.unit.factor / expected.unit.factor
    if factor == 1:
        return expected.value, given.value
    return None if policy.units == "match" else (expected.value, _times(given.value, factor))


def same_in_base(gold: str, prediction: str) -> bool | None:
    """Compare numerals with a base behind them; a base that only one of them states is taken as understood."""
    expected, given = BASE.fullmatch(gold), BASE.fullmatch(prediction)
    if expected is None and given is None:
        return None
    if expected and given and _base(expected) != _base(given):
        return False
    return _digits(expected, gold) == _digits(given, prediction)


def same_with_colons(gold: str, prediction: str) -> bool | None:
    """Compare times of day by their parts and ratios by their proportion; None where one of them is neither."""
    if not (COLONS.fullmatch(gold) and COLONS.fullmatch(prediction)):
        return None
    expected, given = ([int(part) for part in text.split(":")] for text in (gold, prediction))
    if len(expected) != len(given):
        return False
    if _is_time(gold) and _is_time(prediction):
        return expected == given
    return any(expected) == any(given) and all(
        a * given[0] == b * expected[0] for a, b in zip(expected, given, strict=True)
    )


def _quantity(text: str) -> Quantity:
    degrees = DEGREES.search(text)
    if degrees and degrees.start() and not TRIGONOMETRIC.search(text):
        return Quantity(text[: degrees.start()].strip(), degrees=True)
    wrapped = WRAPPED_UNIT.search(text)
    if wrapped and text[: wrapped.start()].strip():
        return Quantity(text[: wrapped.start()].strip(), named_unit(wrapped["unit"], int(wrapped["power"] or 1)))
    plain = PLAIN_UNIT.search(text)
    if plain and plain.start() and _reads_as_word(text, plain):
        return Quantity(text[: plain.start()].strip(), named_unit(plain["unit"], int(plain["power"] or 1)))
    return Quantity(text)


def _reads_as_word(text: str, plain: "re.Match[str]") -> bool:
    """Letters behind a number are a unit if it is a known one, or a word that stands apart."""
    word, apart = plain["unit"], text[plain.start() - 1] == " "
    if not text[: plain.start()].rstrip()[-1:].isdigit() or "\\" in text:
        return False
    return (word in UNITS and (apart or len(word) > 1)) or (apart and len(word) >= SHORTEST_PLAIN_WORD)


def _in_radians(degrees: str) -> str:
    return rf"\frac{{({degrees}) \pi}}{{180}}"


def _times(value: str, factor: Fraction) -> str:
    number = parse_rational(value)
    if number is not None:
        product = number.value * factor
        return f"{product.numerator}/{product.denominator}"
    return rf"({value}) \cdot \frac{{{factor.numerator}}}{{{factor.denominator}}}"


def _base(match: "re.Match[str]") -> str:
    return str(match["base"] or match["digit"])


def _digits(match: "re.Match[str] | None", text: str) -> str:
    return (match["digits"] if match else text).lstrip("0")


def _is_time(text: str) -> bool:
    hours, *rest = (part.strip() for part in text.split(":"))
    return len(hours) <= 2 and all(len(part) == 2 and part < "60" for part in rest)
