"""Refuses text that a computer-algebra system would choke on, before it sees it."""

import re

from services.verifier.checkers.magnitude import MAX_VALUE_DIGITS, digits_at_most

__all__ = ["MAX_CHARACTERS", "is_too_complex", "is_too_hard_to_parse"]

MAX_CHARACTERS = 2000
MAX_NESTING = 50  # 200 nested parentheses alone keep the parser busy for more than five seconds
MAX_DIGITS_RUN = 500
MAX_ROOT_DIGITS = 1000  # sympy looks for factors of what stands under a root

LONG_DIGITS = re.compile(rf"[0-9]{{{MAX_DIGITS_RUN + 1}}}")
COSTLY = re.compile(r"\\(?:i*int|oint|sum|prod|lim|limsup|liminf|det)(?![a-zA-Z])|[∫∑∏]")
TOKEN = re.compile(r"\\[a-zA-Z]+|[0-9.]+|[^\s]")
ROOT = re.compile(r"\\sqrt|√")
OPENING, CLOSING = "({[", ")}]"


def is_too_complex(text: str) -> bool:
    """Say whether the text is longer, nested deeper or makes longer numbers than any honest answer."""
    if len(text) > MAX_CHARACTERS or LONG_DIGITS.search(text) is not None:
        return True
    limit = MAX_ROOT_DIGITS if ROOT.search(text) else MAX_VALUE_DIGITS
    return _nesting(text) > MAX_NESTING or digits_at_most(text) > limit


def is_too_hard_to_parse(prediction: str, gold: str) -> bool:
    """Say whether parsing and evaluating the prediction may take seconds where the gold gives no reason for it.

    Asked only where text, exact numbers and structure left the question open: a list of 300 numbers never comes here.
    """
    if COSTLY.search(prediction) is not None and COSTLY.search(gold) is None:
        return True
    return any(count(prediction) > max(limit, count(gold)) for count, limit in PARSER_LIMITS)


def _nesting(text: str) -> int:
    depth = deepest = 0
    for character in text:
        if character in OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif character in CLOSING and depth:
            depth -= 1
    return deepest


def _tokens(text: str) -> int:
    return sum(1 for _ in TOKEN.finditer(text))


def _ambiguities(text: str) -> int:
    """Marks that double what the parser has to try."""
    return text.count("|") + text.count(r"\pm") + text.count(r"\mp")


PARSER_LIMITS = ((_tokens, 300), (_nesting, 20), (_ambiguities, 12))
