r"""The quick leaf: what text and exact fractions can say of two scalars, in microseconds.

None means that the question is not decidable here, never that the answer is wrong.
"""

import re

from services.verifier.checkers.canonical import canonical_text
from services.verifier.checkers.policy import MathPolicy
from services.verifier.checkers.quantity import aligned, same_in_base, same_with_colons
from services.verifier.checkers.rational import half_unit, parse_rational, same_rational, same_text
from services.verifier.checkers.refute import surely_differ

__all__ = ["is_verbal", "needs_no_parser", "same_scalar"]

WORDS = re.compile(r"[^\W\d_]{2,}(?:[ '-][^\W\d_]+)*\.?")
NO_SOLUTION = re.compile(r"(?:there (?:is|are) )?no (?:real |integer )?solutions?|none|no such .{1,40} exists?", re.I)
EMPTY_SET = r"\emptyset"
INFINITIES = frozenset({r"\infty", r"-\infty", r"+\infty"})
PROSE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}[,.]? [a-zA-Z]{2,}[,.]? [a-zA-Z]{2,}")
TEXT_OR_ELLIPSIS = re.compile(r"\\(?:text|mathrm|mbox) ?\{([^{}]*)\}|\\[lcv]?dots(?![a-z])")
MATHEMATICS = re.compile(r"[\\^_={}+*/<>|]")


def same_scalar(gold: str, prediction: str, policy: MathPolicy) -> bool | None:
    """Compare two canonical scalars."""
    if same_text(gold, prediction):
        return True
    pair = aligned(gold, prediction, policy)
    if pair is None:
        return False
    for compare in (same_with_colons, same_in_base):
        if (same := compare(*pair)) is not None:
            return same
    same = same_rational(*pair, policy)
    if same is None and pair != (gold, prediction):
        same = same_text(*pair) or None
    if same is None:
        same = _same_words(gold, prediction, policy)
    return same if same is not None else _different_values(*pair, policy)


def _different_values(gold: str, prediction: str, policy: MathPolicy) -> bool | None:
    """False where the values differ for certain; a rounded number on one side is no matter for floats."""
    number = parse_rational(gold)
    if number is not None and (prediction in INFINITIES or PROSE.search(prediction) or _holds_no_number(prediction)):
        return False
    if policy.approximation_digits or policy.rename_constants:
        return None
    rounded = number is not None and 0 < policy.rounded_gold_decimals <= number.decimals
    tolerance = float(half_unit(number.decimals)) * 1.01 if number is not None and rounded else 0.0
    return False if surely_differ(gold, prediction, tolerance) else None


def _holds_no_number(text: str) -> bool:
    """Words, a blank to fill in, a letter."""
    return is_verbal(text.replace("_", "")) and not any(map(str.isdigit, text))


def is_verbal(text: str) -> bool:
    """Say whether a canonical text is words, or has an ellipsis: only the same text is the same answer."""
    return MATHEMATICS.search(TEXT_OR_ELLIPSIS.sub(r"\1", text)) is None


def needs_no_parser(gold: str, policy: MathPolicy) -> bool:
    """Say whether a canonical gold can be compared without being parsed; its own text alone is no evidence."""
    pair = aligned(gold, gold, policy)
    if pair is None or not any(character.isalnum() for character in gold):
        return False
    decided = (same_with_colons(*pair), same_in_base(*pair), same_rational(*pair, policy))
    return any(decided) or is_verbal(gold)


def _same_words(gold: str, prediction: str, policy: MathPolicy) -> bool | None:
    """Words are the same but for their case; different words are left to the computer-algebra system."""
    if policy.words_for_empty_set and EMPTY_SET in (gold, prediction):
        other = prediction if gold == EMPTY_SET else gold
        return NO_SOLUTION.fullmatch(canonical_text(other)) is not None or None
    if WORDS.fullmatch(gold) and WORDS.fullmatch(prediction):
        return gold.casefold().rstrip(".") == prediction.casefold().rstrip(".") or None
    return None
