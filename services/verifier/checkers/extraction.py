"""Finds the answer in a completion, in one pass: a hostile megabyte costs no more than an honest one."""

import re
from dataclasses import dataclass

__all__ = ["Extraction", "after_reasoning", "extract_boxed", "extract_marked_or_whole", "has_marked_answer"]

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"

BOX_OPENING = re.compile(r"\\(?:boxed|fbox)\s*\{")
BOX_NAMES = (r"\boxed", r"\fbox")
BRACE_OR_ESCAPE = re.compile(r"\\.|[{}]", re.DOTALL)

MAX_BOX_CHARACTERS = 20_000  # what is longer is cut there: every checker refuses it for its length
MAX_JOINED_BOXES = 100
MAX_JOINER_CHARACTERS = 24
JOINER_TYPOGRAPHY = str.maketrans("", "", " \n\t\r$*,;\\()[]{}~")
JOINING_WORDS = frozenset({"", "or", "and", "textor", "textand", "或", "和"})


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
    Boxes with nothing but "or", "and" or a comma between them are one answer, a list: two guesses are not a choice.
    """
    visible = after_reasoning(completion)
    if visible is None:
        return TRUNCATED
    return _answer(_last_boxes(visible) or "")


def extract_marked_or_whole(completion: str) -> Extraction:
    """Take the last `<answer>` element outside the reasoning, else the last box, else the whole text."""
    visible = after_reasoning(completion)
    if visible is None:
        return TRUNCATED
    element = _last_answer_element(visible)
    if element is not None:
        return _answer(element)
    if BOX_OPENING.search(visible):
        return _answer(_last_boxes(visible) or "")
    return _answer(visible)


def has_marked_answer(completion: str) -> bool:
    """Say whether the answer is complete even if the text was cut: a closed last box or `<answer>` element."""
    visible = after_reasoning(completion)
    return visible is not None and (_last_answer_element(visible) is not None or _last_boxes(visible) is not None)


def _answer(text: str) -> Extraction:
    stripped = text.strip()
    return Extraction("ok", stripped) if stripped else NO_ANSWER


def after_reasoning(completion: str) -> str | None:
    """Return the text after the last `</think>`; None where a `<think>` is still open at the end."""
    end = completion.rfind(THINK_CLOSE)
    visible = completion if end < 0 else completion[end + len(THINK_CLOSE) :]
    return None if THINK_OPEN in visible else visible


def _last_boxes(text: str) -> str | None:
    """Content of the last box, with those joined to it; None where there is none or its brace is never closed."""
    opening = _opening_before(text, len(text))
    end = _closing_brace(text, opening.end()) if opening else None
    if opening is None or end is None:
        return None
    contents = [text[opening.end() : end].strip()]
    while contents[-1] and len(contents) < MAX_JOINED_BOXES:
        before = _opening_before(text, opening.start())
        if before is None or (end := _closing_brace(text, before.end())) is None:
            break
        content = text[before.end() : end].strip()
        if not content or not _joins(text, end + 1, opening.start()):
            break
        contents.append(content)
        opening = before
    return ", ".join(dict.fromkeys(reversed(contents)))


def _opening_before(text: str, limit: int) -> "re.Match[str] | None":
    """The last opening of a box before a position; from the end, as a completion may hold thousands."""
    starts = {name: text.rfind(name, 0, limit) for name in BOX_NAMES}
    while (start := max(starts.values())) >= 0:
        if opening := BOX_OPENING.match(text, start):
            return opening
        name = max(starts, key=lambda known: starts[known])
        starts[name] = text.rfind(name, 0, start)
    return None


def _closing_brace(text: str, start: int) -> int | None:
    """Where the brace that opened before `start` is closed, or the box is cut; None where the text ends first."""
    depth = 1
    for token in BRACE_OR_ESCAPE.finditer(text, start, start + MAX_BOX_CHARACTERS):
        if token.group() == "{":
            depth += 1
        elif token.group() == "}":
            depth -= 1
            if depth == 0:
                return token.start()
    return start + MAX_BOX_CHARACTERS if len(text) > start + MAX_BOX_CHARACTERS else None


def _joins(text: str, start: int, end: int) -> bool:
    if not 0 <= end - start <= MAX_JOINER_CHARACTERS:
        return False
    return text[start:end].translate(JOINER_TYPOGRAPHY) in JOINING_WORDS


def _last_answer_element(text: str) -> str | None:
    end = text.rfind(ANSWER_CLOSE)
    start = text.rfind(ANSWER_OPEN, 0, end) if end >= 0 else -1
    return text[start + len(ANSWER_OPEN) : end] if start >= 0 else None
