"""Refuses text that a computer-algebra system would choke on, before it sees it."""

import re

__all__ = ["MAX_CHARACTERS", "is_too_complex"]

MAX_CHARACTERS = 2000
MAX_NESTING = 50  # 200 nested parentheses alone keep the parser busy for more than five seconds
MAX_DIGITS_RUN = 500

LONG_DIGITS = re.compile(rf"[0-9]{{{MAX_DIGITS_RUN + 1}}}")
OPENING, CLOSING = "({[", ")}]"


def is_too_complex(text: str) -> bool:
    """Say whether the text is longer, nested deeper or has longer numbers than any honest answer."""
    return len(text) > MAX_CHARACTERS or _nesting(text) > MAX_NESTING or LONG_DIGITS.search(text) is not None


def _nesting(text: str) -> int:
    depth = deepest = 0
    for character in text:
        if character in OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif character in CLOSING and depth:
            depth -= 1
    return deepest
