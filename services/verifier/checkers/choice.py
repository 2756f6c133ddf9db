r"""Multiple choice: the letter of the option, and nothing but it."""

import re
import time
from collections.abc import Mapping
from typing import Any

from pacs.errors import BadInput
from services.verifier.checkers.canonical import canonical_text
from services.verifier.checkers.extraction import extract_marked_or_whole
from services.verifier.checkers.guard import MAX_CHARACTERS
from services.verifier.checkers.interface import Judgement, judged

__all__ = ["ChoiceChecker"]

MARK = r"[(\[{*$ ]*(?P<letter>[A-Za-z])[)\]}*$ ]*"
BARE = re.compile(MARK)
LABELLED = re.compile(rf"(?:(?:option|choice|answer)[ :]+)?{MARK}(?:[.:)] .*)?", re.IGNORECASE | re.DOTALL)
WHOLE_TEXT = re.compile(r"\b(?i:answer|option|choice)(?i: is)?[ :]*[(\[*$ ]*([A-Z])(?![A-Za-z])")
TEXT_COMMAND = re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox) ?\{([^{}]*)\}")


class ChoiceChecker:
    r"""Accepts the gold's letter in an `<answer>` element or a box: `B`, `(B)`, `\textbf{(B)}`, `B. because`.

    Without either, the text must say "the answer is B" once, or several times with one letter.
    """

    name = "choice"

    async def check(self, completion: str, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Judge one completion; `task_data` is not used.

        Raises:
            BadInput: the gold is not a letter.

        """
        started = time.perf_counter()
        gold = _gold(answer)
        found = extract_marked_or_whole(completion)
        if found.status != "ok":
            return judged(started, found.status, "extraction")
        letter = _letter(found.text, marked=found.text != _visible(completion))
        if letter is None:
            return judged(started, "no_answer", "letter", found.text)
        return judged(started, "ok" if letter == gold else "wrong", "letter", letter)

    async def check_gold(self, answer: str, task_data: Mapping[str, Any]) -> Judgement:
        """Say whether the gold is one letter.

        Raises:
            BadInput: it is not.

        """
        return await self.check(rf"\boxed{{{_gold(answer)}}}", answer, task_data)

    async def close(self) -> None:
        """Nothing is held."""


def _gold(answer: str) -> str:
    match = BARE.fullmatch(_plain(answer))
    if match is None:
        raise BadInput(
            f"the gold of a choice must be one letter such as B or (B), got {answer[:80]!r}; correct the row"
        )
    return match["letter"].upper()


def _letter(text: str, *, marked: bool) -> str | None:
    """The letter a marked answer is, or the one letter that unmarked text names as its answer."""
    if len(text) <= MAX_CHARACTERS and (match := LABELLED.fullmatch(_plain(text))):
        return str(match["letter"]).upper()
    named = set(WHOLE_TEXT.findall(text)) if not marked else set()
    return named.pop() if len(named) == 1 else None


def _plain(text: str) -> str:
    return TEXT_COMMAND.sub(r"\1", canonical_text(text))


def _visible(completion: str) -> str:
    return completion.rpartition("</think>")[2].strip()
