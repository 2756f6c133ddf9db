"""Refuses text that a computer-algebra system would choke on, before it sees it."""

import re

from services.verifier.checkers.magnitude import MAX_VALUE_DIGITS, digits_at_most

__all__ = ["MAX_CHARACTERS", "is_too_complex", "needs_more_than"]

MAX_CHARACTERS = 2000
MAX_NESTING = 50  # 200 nested parentheses alone keep the parser busy for more than five seconds
MAX_DIGITS_RUN = 500

LONG_DIGITS = re.compile(rf"[0-9]{{{MAX_DIGITS_RUN + 1}}}")
LIMIT_PROCESS = re.compile(r"\\(?:i*int|oint|sum|prod|lim|limsup|liminf)(?![a-zA-Z])|[∫∑∏]")
OPENING, CLOSING = "({[", ")}]"


def is_too_complex(text: str) -> bool:
    """Say whether the text is longer, nested deeper or makes longer numbers than any honest answer."""
    if len(text) > MAX_CHARACTERS or LONG_DIGITS.search(text) is not None:
        return True
    return _nesting(text) > MAX_NESTING or digits_at_most(text) > MAX_VALUE_DIGITS


def needs_more_than(prediction: str, gold: str) -> bool:
    """Say whether the prediction asks for an integral, sum, product or limit though the gold has none."""
    return LIMIT_PROCESS.search(prediction) is not None and LIMIT_PROCESS.search(gold) is None


def _nesting(text: str) -> int:
    depth = deepest = 0
    for character in text:
        if character in OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif character in CLOSING and depth:
            depth -= 1
    return deepest
