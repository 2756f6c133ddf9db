"""Finds the program in a completion: the last fenced block of Python, in one pass over the lines."""

from services.verifier.checkers.extraction import Extraction, after_reasoning

__all__ = ["extract_program"]

FENCE = "```"
PYTHON_TAGS = ("python", "python3", "py")


def extract_program(completion: str, *, whole: bool = False) -> Extraction:
    """Take the last closed block marked as Python, else the last one without a mark.

    Args:
        completion: what the model wrote; what it thought before the last `</think>` does not count.
        whole: the text as it is, without a fence.

    """
    visible = after_reasoning(completion)
    if visible is None:
        return Extraction("truncated")
    program = visible if whole else _last_block(visible)
    return Extraction("ok", program) if program.strip() else Extraction("no_answer")


def _last_block(text: str) -> str:
    """Empty where there is none; a block that is never closed is none."""
    found = {True: "", False: ""}  # by whether it is marked as Python
    tag, lines = "", []
    inside = False
    for line in text.split("\n"):
        mark = line.strip()
        if not mark.startswith(FENCE):
            lines.append(line)
        elif not inside:
            inside, tag, lines = True, mark[len(FENCE) :].strip().lower(), []
        elif mark == FENCE:
            inside = False
            if tag in PYTHON_TAGS or not tag:
                found[bool(tag)] = "\n".join(lines)
        else:
            lines.append(line)
    return found[True] or found[False]
