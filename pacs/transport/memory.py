"""The streams of one lane in one process's memory: for unit tests and for reading what the promises mean."""

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pacs.transport.interface import Delivery, Ledger, Stream

__all__ = ["MemoryStreams"]


@dataclass
class _Entry:
    payload: bytes
    holder: str | None = None
    held_since: float = 0.0
    deliveries: int = 0


@dataclass
class MemoryStreams:
    """See `pacs.transport.interface.GroupStreams`.

    Args:
        claim_seconds: a group held longer than this may be taken over.

    """

    claim_seconds: float = 60.0
    _admitted: int = 0
    _next_sequence: int = 0
    _trained: int = 0
    _tokens: int = 0
    _dropped: dict[str, int] = field(default_factory=dict)
    _ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))
    _streams: dict[Stream, dict[str, _Entry]] = field(default_factory=lambda: {stream: {} for stream in Stream})
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def admit(self, sequence: int, payload: bytes) -> bool:
        """Add the prompt if it is the next one."""
        if sequence != self._next_sequence:
            return False
        self._next_sequence += 1
        self._admitted += 1
        await self._add(Stream.PROMPTS, payload)
        return True

    async def read(self, stream: Stream, consumer: str, count: int, wait_seconds: float) -> list[Delivery]:
        """Take what is free or has lain idle too long, oldest first."""
        async with self._changed:
            try:
                async with asyncio.timeout(wait_seconds):
                    await self._changed.wait_for(lambda: self._free(stream))
            except TimeoutError:
                return []
            return [self._take(stream, entry_id, consumer) for entry_id in self._free(stream)[:count]]

    async def reclaim(self, stream: Stream, consumer: str) -> list[Delivery]:
        """Take again what this consumer held."""
        mine = [entry_id for entry_id, entry in self._streams[stream].items() if entry.holder == consumer]
        return [self._take(stream, entry_id, consumer) for entry_id in mine]

    async def hand_over(
        self, source: Stream, entry_id: str, target: Stream, payload: bytes, new_tokens: int = 0
    ) -> bool:
        """Move a group on, once."""
        if not self._acknowledge(source, entry_id):
            return False
        self._tokens += new_tokens
        await self._add(target, payload)
        return True

    async def finish_trained(self, entry_ids: Sequence[str]) -> int:
        """Count labelled groups as trained."""
        finished = sum(self._acknowledge(Stream.LABELED, entry_id) for entry_id in entry_ids)
        self._trained += finished
        return finished

    async def drop(self, stream: Stream, entry_id: str, reason: str) -> bool:
        """Count a group as dropped."""
        if not self._acknowledge(stream, entry_id):
            return False
        self._dropped[reason] = self._dropped.get(reason, 0) + 1
        return True

    async def admit_again(self, stream: Stream, entry_id: str, prompt: bytes, reason: str) -> bool:
        """Drop a group and admit its prompt once more."""
        if not await self.drop(stream, entry_id, reason):
            return False
        self._admitted += 1
        await self._add(Stream.PROMPTS, prompt)
        return True

    async def dead_letter(self, stream: Stream, delivery: Delivery, reason: str) -> bool:
        """Keep the bytes, count the group as dropped."""
        if not await self.drop(stream, delivery.entry_id, reason):
            return False
        await self._add(Stream.DEAD, delivery.payload)
        return True

    async def ledger(self) -> Ledger:
        """Read all counts."""
        in_flight = sum(len(entries) for stream, entries in self._streams.items() if stream is not Stream.DEAD)
        return Ledger(self._admitted, self._trained, in_flight, dict(self._dropped), self._tokens, self._next_sequence)

    async def queue_lengths(self) -> Mapping[Stream, int]:
        """Groups in each stream."""
        return {stream: len(entries) for stream, entries in self._streams.items()}

    def _free(self, stream: Stream) -> list[str]:
        expired = time.monotonic() - self.claim_seconds
        return [i for i, e in self._streams[stream].items() if e.holder is None or e.held_since <= expired]

    def _take(self, stream: Stream, entry_id: str, consumer: str) -> Delivery:
        entry = self._streams[stream][entry_id]
        entry.holder, entry.held_since = consumer, time.monotonic()
        entry.deliveries += 1
        return Delivery(entry_id, entry.payload, entry.deliveries)

    def _acknowledge(self, stream: Stream, entry_id: str) -> bool:
        entry = self._streams[stream].get(entry_id)
        if entry is None or entry.holder is None:
            return False
        del self._streams[stream][entry_id]
        return True

    async def _add(self, stream: Stream, payload: bytes) -> None:
        async with self._changed:
            self._streams[stream][f"{next(self._ids)}-0"] = _Entry(payload)
            self._changed.notify_all()
