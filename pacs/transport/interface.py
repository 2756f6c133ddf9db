"""What a group travels on: the four streams of a run and its ledger, as one interface.

Two implementations with the same promises and the same tests: `redis_streams` and, for unit tests and
single-process use, `memory`. Payloads are opaque bytes here; `pacs.wire` gives them meaning.

Promises
    * A group is in exactly one stream at any instant: `hand_over` acknowledges on the source and adds to the target in
      one step, and adds only if the acknowledgement removed something. A worker that finishes late, after its claim was
      taken over, changes nothing.
    * Nothing is lost by a crash: what a consumer read and did not finish is delivered again, to itself at its next
      start or to another consumer once it lay idle for the stage's deadline.
    * `admitted = trained + Σ dropped + in_flight` at any instant; in_flight is counted from the streams themselves.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

__all__ = ["Delivery", "GroupStreams", "Lane", "Ledger", "Stream"]


class Stream(enum.Enum):
    """The streams in the order a group passes them."""

    PROMPTS = "prompts"
    COMPLETIONS = "completions"
    LABELED = "labeled"
    DEAD = "dead"


class Lane(enum.Enum):
    """Training and evaluation groups travel the same way, on streams and ledgers of their own."""

    TRAIN = "train"
    EVALUATION = "evaluation"


@dataclass(frozen=True)
class Delivery:
    """One group in a consumer's hands.

    Args:
        entry_id: the stream's own id.
        payload: the bytes that were added.
        deliveries: how often it has been handed out, this time included; more than one means a worker died on it.

    """

    entry_id: str
    payload: bytes
    deliveries: int


@dataclass(frozen=True)
class Ledger:
    """Where every admitted group of a lane is.

    Args:
        admitted: prompts put into the stream, those admitted again counted again.
        dropped: groups by reason.
        tokens_generated: response tokens handed over by the rollout.
        next_sequence: sequence numbers below it were admitted.

    """

    admitted: int
    trained: int
    in_flight: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    tokens_generated: int = 0
    next_sequence: int = field(default=0, compare=False)  # a place in the order, not a count of groups

    @property
    def balances(self) -> bool:
        """Whether every admitted group is accounted for exactly once."""
        return self.admitted == self.trained + sum(self.dropped.values()) + self.in_flight


class GroupStreams(Protocol):
    """The streams and the ledger of one lane of one run."""

    async def admit(self, sequence: int, payload: bytes) -> bool:
        """Add the prompt with this sequence number; False if it was admitted before (by whomever)."""

    async def read(self, stream: Stream, consumer: str, count: int, wait_seconds: float) -> list[Delivery]:
        """Take up to `count` groups, waiting `wait_seconds` for the first. Oldest first.

        Groups that another consumer has held for longer than the claim deadline come first.
        """

    async def reclaim(self, stream: Stream, consumer: str) -> list[Delivery]:
        """Take again what this consumer held when its process ended. Called once, at start."""

    async def hand_over(
        self, source: Stream, entry_id: str, target: Stream, payload: bytes, new_tokens: int = 0
    ) -> bool:
        """Move a group on; False if somebody else finished it first, and then nothing changed.

        `new_tokens` are counted into the ledger in the same step: the response tokens that this stage sampled.
        """

    async def finish_trained(self, entry_ids: Sequence[str]) -> int:
        """Count labelled groups as trained and let them go; returns how many were still to be counted."""

    async def drop(self, stream: Stream, entry_id: str, reason: str) -> bool:
        """Count a group as dropped and let it go; False if somebody else finished it first."""

    async def admit_again(self, stream: Stream, entry_id: str, prompt: bytes, reason: str) -> bool:
        """Count a group as dropped and its prompt as admitted once more; False if somebody else finished it first."""

    async def dead_letter(self, stream: Stream, delivery: Delivery, reason: str) -> bool:
        """Drop a group whose bytes or fate need a person's look: they are kept in the dead stream, with the reason."""

    async def ledger(self) -> Ledger:
        """Read all counts in one step."""

    async def queue_lengths(self) -> Mapping[Stream, int]:
        """Groups in each stream, those in somebody's hands included."""
