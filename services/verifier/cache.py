"""Verdicts by content: the same completion of the same row is judged once."""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pacs.wire.groups import Label
from services.verifier.checkers.interface import Judgement

__all__ = ["VerdictCache", "content_key", "row_digest"]


def row_digest(task: str, answer: str, task_data: Mapping[str, Any]) -> bytes:
    """Digest of what a group's verdicts depend on together."""
    return hashlib.sha256(json.dumps([task, answer, task_data], sort_keys=True, default=repr).encode()).digest()


def content_key(row: bytes, finish_reason: str, completion: str) -> bytes:
    """Digest of everything a verdict depends on; `row` is from `row_digest`."""
    text = f"{finish_reason}\n{completion}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(row + text).digest()


class VerdictCache:
    """The verdicts given last; only settled ones, as what could not be judged deserves another try.

    Args:
        entries: verdicts kept; 0: none.

    """

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._judgements: OrderedDict[bytes, Judgement] = OrderedDict()

    def __len__(self) -> int:
        return len(self._judgements)

    def get(self, key: bytes) -> Judgement | None:
        """The verdict given for this content, in no time and without what the reference said; None if not known."""
        judgement = self._judgements.get(key)
        if judgement is None:
            return None
        self._judgements.move_to_end(key)
        return replace(judgement, seconds=0.0, reference="")

    def put(self, key: bytes, judgement: Judgement) -> None:
        """Keep a settled verdict, and let the one go that was not asked for longest."""
        if judgement.label is Label.INVALID or not self._entries:
            return
        self._judgements[key] = judgement
        self._judgements.move_to_end(key)
        if len(self._judgements) > self._entries:
            self._judgements.popitem(last=False)
