"""The slow leaf: latex2sympy and math-verify read, sympy evaluates. Imported by the worker process only.

Two expressions are the same if they agree to 30 digits, relative to their size, at sample points: differences below a
float's precision are differences, and no `simplify` is asked that may never end. math-verify compares what is left:
sets, relations and what has no value.
"""

import itertools
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import sympy  # noqa: TID253  # this file is the edge of sympy and math-verify
from latex2sympy2_extended.latex2sympy2 import NormalizationConfig, normalize_latex
from math_verify import verify  # noqa: TID253
from math_verify.parser import parse_latex_cached  # noqa: TID253
from sympy.core.function import AppliedUndef  # noqa: TID253

from services.verifier.checkers.policy import MathPolicy
from services.verifier.checkers.quantity import aligned
from services.verifier.checkers.quick import is_verbal
from services.verifier.checkers.rational import half_unit, parse_rational, significant_digits

__all__ = ["UnreadableGold", "symbolic_scalar"]

READING = NormalizationConfig(
    basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
)
BARE_LOG = re.compile(r"\\log(?! ?_)(?![a-zA-Z])")
DEGREES = re.compile(r"\^ ?\{? ?\\circ ?\}?")
TRIGONOMETRIC = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")

SUBSCRIPT_E = re.compile(r"(?<![a-zA-Z\\])[Ee](?= ?_)")  # the parser takes it for Euler's number and fails
SUBSCRIPT_COMMAND = re.compile(r"_ ?\{? ?\\(max|min|odot|oplus|ast|star|perp|parallel) ?\}?")

DIGITS = 30
TOLERANCE = sympy.Rational(1, 10**DIGITS)
WORKING_DIGITS = DIGITS + 8
CANCELLED_DIGITS = 400  # as many leading digits may cancel before a difference counts as zero
ZERO = sympy.Rational(1, 10 ** (CANCELLED_DIGITS // 2))

# Symbol number k takes the k-th value of a point, cyclically. Sizes stay small: they are raised to powers.
INTEGER_POINTS = ((3, 5, 2, 7, 4), (2, 7, 5, 3, 6), (5, 2, 4, 3, 8))
RATIONAL_POINTS = (
    ("17/7", "9/13", "5/3", "22/9", "8/11"),
    ("5/11", "21/8", "13/6", "4/7", "19/12"),
    ("-13/9", "7/5", "-11/4", "5/6", "-3/7"),
    ("-4/7", "-23/10", "3/8", "-9/5", "14/3"),
)
MAX_RENAMED = 4


class UnreadableGold(ValueError):
    """The gold answer is no mathematics that can be parsed."""


def symbolic_scalar(gold: str, prediction: str, policy: MathPolicy) -> bool:
    """Compare two canonical texts as mathematics.

    Raises:
        UnreadableGold: the gold does not parse and is not words either.

    """
    pair = aligned(gold, prediction, policy)
    if pair is None:
        return False
    expected = _read(pair[0], policy.log)
    if expected is None and is_verbal(gold):
        return False
    if expected is None:
        raise UnreadableGold(gold)
    given = _read(pair[1], policy.log)
    if given is None:
        return False
    rounded = _same_but_for_rounding(pair[0], expected, pair[1], given, policy)
    return same_mathematics(expected, given, policy) if rounded is None else rounded


def same_mathematics(gold: Any, given: Any, policy: MathPolicy) -> bool:
    """Compare two parsed answers of any kind."""
    if isinstance(gold, sympy.MatrixBase) or isinstance(given, sympy.MatrixBase):
        return _same_matrix(gold, given, policy)
    if isinstance(gold, sympy.FiniteSet) and isinstance(given, sympy.FiniteSet):
        return _same_elements(gold, given, policy)
    if _is_sequence(gold) and isinstance(given, sympy.FiniteSet):
        return False  # a tuple gold needs a tuple
    if isinstance(gold, sympy.Eq) and isinstance(given, sympy.Eq):
        proportional = _proportional(gold, given)
        if proportional is not None:
            return proportional
    if _is_expression(gold) and _is_expression(given):
        same = _same_expression(gold, given)
        if same is None and policy.rename_constants:
            return _same_after_renaming(gold, given)
        if same is not None:
            return same or (policy.rename_constants and _same_after_renaming(gold, given))
    return bool(
        verify(
            gold,
            given,
            allow_set_relation_comp=policy.inequality_for_interval,
            timeout_seconds=None,
            raise_on_error=True,
        )
    )


@lru_cache(maxsize=512)
def _read(text: str, log: str) -> Any:
    """Parse LaTeX; None where it is none."""
    if log == "natural":
        text = BARE_LOG.sub(r"\\ln", text)
    if TRIGONOMETRIC.search(text):
        text = DEGREES.sub(r" \\cdot \\frac{\\pi}{180}", text)
    text = SUBSCRIPT_COMMAND.sub(r"_{\1}", SUBSCRIPT_E.sub(r"\\varepsilon ", text))
    try:
        parsed = parse_latex_cached(normalize_latex(text, config=READING))
    except RecursionError:
        raise
    except Exception:  # the parser raises bare exceptions on what it does not understand
        return None
    # The parser makes a symbol that is not real of some imaginary units.
    units = {symbol: sympy.I for symbol in parsed.free_symbols if symbol.name == "i" and symbol.is_real is False}
    return parsed.subs(units) if units else parsed


def _is_expression(value: Any) -> bool:
    return isinstance(value, sympy.Expr) and not value.has(AppliedUndef)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (sympy.Tuple, sympy.Interval)) and not isinstance(value, sympy.FiniteSet)


def _same_matrix(gold: Any, given: Any, policy: MathPolicy) -> bool:
    if not (isinstance(gold, sympy.MatrixBase) and isinstance(given, sympy.MatrixBase)) or gold.shape != given.shape:
        return False
    return all(same_mathematics(a, b, policy) for a, b in zip(gold.flat(), given.flat(), strict=True))


def _same_elements(gold: Any, given: Any, policy: MathPolicy) -> bool:
    if len(gold.args) != len(given.args):
        return False
    free = list(given.args)
    for element in gold.args:
        partner = next((other for other in free if same_mathematics(element, other, policy)), None)
        if partner is None:
            return False
        free.remove(partner)
    return True


def _same_but_for_rounding(gold_text: str, gold: Any, given_text: str, given: Any, policy: MathPolicy) -> bool | None:
    """Accept what a rounded gold rounds, and, where the policy asks for it, a rounded prediction."""
    if not (_is_number(gold) and _is_number(given)):
        return None
    expected, found = parse_rational(gold_text), parse_rational(given_text)
    if expected and not found and 0 < policy.rounded_gold_decimals <= expected.decimals:
        return _within(_exact(gold), _exact(given), half_unit(expected.decimals))
    if found and found.decimals and not expected and policy.approximation_digits:
        enough = significant_digits(found.value, found.decimals) >= policy.approximation_digits
        return enough and _within(_exact(gold), _exact(given), half_unit(found.decimals))
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, sympy.Expr) and not value.free_symbols and not value.has(AppliedUndef)


def _within(gold: Any, given: Any, tolerance: Any) -> bool | None:
    a, b = _value(gold, {}), _value(given, {})
    if a is None or b is None:
        return None
    exact = sympy.Rational(tolerance.numerator, tolerance.denominator)
    return bool(sympy.Abs(a - b) <= exact * (1 + sympy.Rational(1, 10**DIGITS)))


def _same_expression(gold: Any, given: Any) -> bool | None:
    """Compare at sample points; None where no two points tell, or only points between the integers differ."""
    gold, given = _exact(gold), _exact(given)
    if gold == given:
        return True
    if gold.has(sympy.I):
        given = given.subs({symbol: sympy.I for symbol in given.free_symbols if symbol.name == "i"})
    outcomes = [(integer, _agree_at(gold, given, point)) for integer, point in _points(gold, given)]
    told = [(integer, agree) for integer, agree in outcomes if agree is not None]
    if any(integer and not agree for integer, agree in told):
        return False
    if len(told) < 2 and (gold.free_symbols or given.free_symbols):
        return None
    if not told:
        return None
    return True if all(agree for _, agree in told) else None


def _points(gold: Any, given: Any) -> Iterator[tuple[bool, Mapping[str, Any]]]:
    """Whether the values are integers, and the value of each symbol."""
    names = sorted({symbol.name for symbol in gold.free_symbols | given.free_symbols})
    if not names:
        yield True, {}
        return
    for point in INTEGER_POINTS:
        yield True, _assigned(names, point)
    for fractions in RATIONAL_POINTS:
        yield False, _assigned(names, fractions)


def _assigned(names: list[str], point: tuple[Any, ...]) -> Mapping[str, Any]:
    # The round is added so that the sixth symbol does not equal the first.
    return {name: sympy.Rational(point[k % len(point)]) + k // len(point) for k, name in enumerate(names)}


def _agree_at(gold: Any, given: Any, point: Mapping[str, Any]) -> bool | None:
    """Compare two values; None where the gold has none, or no real one though it has no imaginary unit."""
    expected, found = _value(gold, point), _value(given, point)
    if expected is None:
        return None
    if expected.is_real is False and not gold.has(sympy.I):
        return None
    if found is None:
        return None if given.has(sympy.Integral, sympy.Sum, sympy.Product, sympy.Limit) else False
    if (expected.is_Rational and found.is_Rational) or expected.is_infinite or found.is_infinite:
        return bool(expected == found)
    size = sympy.Max(sympy.Abs(expected), sympy.Abs(found))
    return bool(size <= ZERO or sympy.Abs(expected - found) <= TOLERANCE * size)


def _value(expression: Any, point: Mapping[str, Any]) -> Any:
    """The finite number an expression takes at a point: exact where it is rational; None where it takes none."""
    bound = expression.subs({symbol: point[symbol.name] for symbol in expression.free_symbols})
    bound = bound.doit()
    if isinstance(bound, sympy.Rational):
        return bound
    number = sympy.N(bound, WORKING_DIGITS, maxn=CANCELLED_DIGITS)
    if not isinstance(number, sympy.Expr) or not number.is_number or number.has(sympy.nan, sympy.oo, sympy.zoo):
        return number if number in (sympy.oo, -sympy.oo) and not point else None
    real, imaginary = number.as_real_imag()
    if not (real.is_Number and imaginary.is_Number):
        return None
    return real if sympy.Abs(imaginary) <= ZERO else number


def _exact(expression: Any) -> Any:
    """Decimals as the fractions they are written as, and every operation carried out that the parser left open."""
    floats = {number: sympy.Rational(str(number)) for number in expression.atoms(sympy.Float)}
    return expression.xreplace(floats).doit()


def _proportional(gold: Any, given: Any) -> bool | None:
    """Whether two equations set multiples of one expression to zero; None where too few points tell."""
    a, b = _numerator(gold), _numerator(given)
    ratios = []
    for _, point in _points(a, b):
        left, right = _value(a, point), _value(b, point)
        if left is None or right is None:
            continue
        if bool(left == 0) != bool(right == 0):
            return False
        if left != 0:
            ratios.append(right / left)
    if len(ratios) < 3:
        return None
    return all(sympy.Abs(r - ratios[0]) <= TOLERANCE * sympy.Abs(ratios[0]) for r in ratios)


def _numerator(equation: Any) -> Any:
    return sympy.fraction(sympy.together(_exact(equation.lhs - equation.rhs)))[0]


def _same_after_renaming(gold: Any, given: Any) -> bool:
    """Try every way to give the prediction's own constants the names of the gold's."""
    wanted = sorted(gold.free_symbols - given.free_symbols, key=str)
    foreign = sorted(given.free_symbols - gold.free_symbols, key=str)
    if not 0 < len(wanted) == len(foreign) <= MAX_RENAMED:
        return False
    return any(
        _same_expression(gold, given.subs(dict(zip(foreign, names, strict=True)), simultaneous=True)) is True
        for names in itertools.permutations(wanted)
    )
