"""Finds the answer in a completion, in one pass: a hostile megabyte costs no more than an honest one."""

import re
from collections import deque
from dataclasses import dataclass

__all__ = ["Extraction", "after_reasoning", "extract_boxed", "extract_marked_or_whole", "has_marked_answer"]

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"

BOX_OPENING = re.compile(r"\\(?:boxed|fbox)\s*\{")
BRACE_OR_ESCAPE = re.compile(r"\\.|[{}]", re.DOTALL)


@dataclass(frozen=True)
class Extraction:
    """What was taken for the answer.

    Args:
        status: ok, no_answer or truncated.
        text: the answer without surrounding whitespace; not empty exactly when status is ok.

    """

    status: str
    text: str = ""


NO_ANSWER = Extraction("no_answer")
TRUNCATED = Extraction("truncated")


def extract_boxed(completion: str) -> Extraction:
    r"""Take the content of the last `\boxed{}` or `\fbox{}` outside the reasoning.

    The last box counts even where it is empty or never closed: an earlier one is not what the completion ends on.
    """
    visible = after_reasoning(completion)
    if visible is None:
        return TRUNCATED
    return _answer(_last_box(visible) or "")


def extract_marked_or_whole(completion: str) -> Extraction:
    """Take the last `<answer>` element outside the reasoning, else the last box, else the whole text."""
    visible = after_reasoning(completion)
    if visible is None:
        return TRUNCATED
    element = _last_answer_element(visible)
    if element is not None:
        return _answer(element)
    if BOX_OPENING.search(visible):
        return _answer(_last_box(visible) or "")
    return _answer(visible)


def has_marked_answer(completion: str) -> bool:
    """Say whether the answer is complete even if the text was cut: a closed last box or `<answer>` element."""
    visible = after_reasoning(completion)
    return visible is not None and (_last_answer_element(visible) is not None or _last_box(visible) is not None)


def _answer(text: str) -> Extraction:
    stripped = text.strip()
    return Extraction("ok", stripped) if stripped else NO_ANSWER


def after_reasoning(completion: str) -> str | None:
    """Return the text after the last `</think>`; None where a `<think>` is still open at the end."""
    end = completion.rfind(THINK_CLOSE)
    visible = completion if end < 0 else completion[end + len(THINK_CLOSE) :]
    return None if THINK_OPEN in visible else visible


def _last_box(text: str) -> str | None:
    """Content of the last box; None where there is none or its brace is never closed."""
    openings = deque(BOX_OPENING.finditer(text), maxlen=1)
    if not openings:
        return None
    opening = openings.pop()
    depth = 1
    for token in BRACE_OR_ESCAPE.finditer(text, opening.end()):
        if token.group() == "{":
            depth += 1
        elif token.group() == "}":
            depth -= 1
            if depth == 0:
                return text[opening.end() : token.start()]
    return None


def _last_answer_element(text: str) -> str | None:
    end = text.rfind(ANSWER_CLOSE)
    start = text.rfind(ANSWER_OPEN, 0, end) if end >= 0 else -1
    return text[start + len(ANSWER_OPEN) : end] if start >= 0 else None
