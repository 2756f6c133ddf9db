"""Finds the answer in a completion, in one pass: a hostile megabyte costs no more than an honest one."""

import re
from dataclasses import dataclass

__all__ = ["Extraction", "after_reasoning", "extract_boxed", "extract_marked_or_whole", "has_marked_answer"]

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
ANSWER_OPEN, ANSWER_CLOSE = "<answer>", "</answer>"

BOX_OPENING = re.compile(r"\\(?:boxed|fbox)\s*\{")
# Up to three backslashes: a line break or an escaped backslash may stand right before the command.
BOX_BRACE_OR_ESCAPE = re.compile(r"(?P<box>\\{1,3}(?:boxed|fbox)\s*\{)|\\.|[{}]", re.DOTALL)

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


@dataclass
class Box:
    """Where a box opens, where its content begins and ends; `end` is negative while it is open."""

    opening: int
    start: int
    end: int = -1


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
    first = BOX_OPENING.search(text)
    if first is None:
        return None
    boxes = _boxes(text, first.start())
    if boxes[-1].end < 0:
        return None
    contents = [_content(text, boxes[-1])]
    for before, after in zip(reversed(boxes[:-1]), reversed(boxes), strict=False):
        if not contents[-1] or not _joined(text, before, after):
            break
        contents.append(_content(text, before))
    return ", ".join(dict.fromkeys(reversed(contents)))


def _boxes(text: str, start: int) -> list[Box]:
    """Every box from `start` on, in the order in which they open."""
    boxes: list[Box] = []
    braces: list[Box | None] = []
    for token in BOX_BRACE_OR_ESCAPE.finditer(text, start):
        if token["box"]:
            boxes.append(Box(token.start(), token.end()))
            braces.append(boxes[-1])
        elif token.group() == "{":
            braces.append(None)
        elif token.group() == "}" and braces:
            closed = braces.pop()
            if closed is not None:
                closed.end = token.start()
    return boxes


def _content(text: str, box: Box) -> str:
    return text[box.start : box.end].strip()


def _joined(text: str, before: Box, after: Box) -> bool:
    gap = after.opening - before.end - 1
    if before.end < 0 or not 0 <= gap <= MAX_JOINER_CHARACTERS:
        return False
    between = text[before.end + 1 : after.opening].translate(JOINER_TYPOGRAPHY)
    return between in JOINING_WORDS and bool(_content(text, before))


def _last_answer_element(text: str) -> str | None:
    end = text.rfind(ANSWER_CLOSE)
    start = text.rfind(ANSWER_OPEN, 0, end) if end >= 0 else -1
    return text[start + len(ANSWER_OPEN) : end] if start >= 0 else None
