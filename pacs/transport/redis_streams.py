"""The streams of one lane in Redis (6.2 or later, or Valkey): see `pacs.transport.interface`."""

import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from pacs.errors import BadInput
from pacs.transport.interface import Delivery, Lane, Ledger, Stream

__all__ = ["RedisStreams", "check_server"]

CONSUMER_GROUP = "stage"  # one a stream: each stream has exactly one kind of reader
CLAIM_INTERVAL_SECONDS = 1.0  # how often a busy reader looks for groups that others left lying
OPERATIONS = ("admit", "admit_again", "hand_over", "finish_trained", "drop", "ledger")
_PLACES = (Stream.PROMPTS, Stream.COMPLETIONS, Stream.LABELED)


async def check_server(client: "Redis") -> None:
    """Refuse a server that could lose groups.

    Raises:
        BadInput: older than 6.2, or `maxmemory-policy` other than noeviction, or no append-only file.

    """
    info = await client.info("server")
    version = tuple(int(part) for part in info.get("redis_version", "0").split(".")[:2])
    if version < (6, 2):
        raise BadInput(f"Redis must be at least 6.2 (XAUTOCLAIM), got {info.get('redis_version')}; upgrade the server")
    policy = (await client.config_get("maxmemory-policy"))["maxmemory-policy"]
    if policy != "noeviction":
        raise BadInput(
            "Redis must run with maxmemory-policy noeviction, or it throws streams away when memory is short, "
            f"got maxmemory-policy={policy}; set maxmemory-policy noeviction"
        )
    if (await client.config_get("appendonly"))["appendonly"] != "yes":
        raise BadInput("Redis must run with appendonly yes, or a restart loses groups; set appendonly yes")


class RedisStreams:
    """See `GroupStreams`.

    Args:
        client: with `decode_responses=False`.
        run: name of the run; the keys' hash tag.
        claim_seconds: a group held longer than this may be taken over.

    """

    def __init__(self, client: "Redis", run: str, lane: Lane = Lane.TRAIN, claim_seconds: float = 120.0) -> None:
        self._client = client
        self._prefix = f"{{{run}}}:" if lane is Lane.TRAIN else f"{{{run}}}:{lane.value}:"
        self._claim_milliseconds = int(claim_seconds * 1000)
        self._next_claim: dict[Stream, float] = {}
        source = resources.files("pacs.transport").joinpath("streams.lua").read_text()
        self._operations = {
            name: client.register_script(f"local operation = '{name}'\n{source}") for name in OPERATIONS
        }

    def key(self, stream: Stream) -> str:
        """Name of the stream's key."""
        return f"{self._prefix}{stream.value}"

    @property
    def ledger_key(self) -> str:
        """Name of the hash with the counters."""
        return f"{self._prefix}ledger"

    async def prepare(self) -> None:
        """Make the streams and their consumer groups where they are missing."""
        for stream in _PLACES:
            try:
                await self._client.xgroup_create(self.key(stream), CONSUMER_GROUP, id="0", mkstream=True)
            except ResponseError as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise

    async def admit(self, sequence: int, payload: bytes) -> bool:
        """Add the prompt if it is the next one."""
        return await self._run("admit", [self.key(Stream.PROMPTS), self.ledger_key], [sequence, payload])

    async def read(self, stream: Stream, consumer: str, count: int, wait_seconds: float) -> list[Delivery]:
        """Take over what others left lying, then take what is new."""
        taken = await self._take_over(stream, consumer, count)
        if taken:
            return taken
        reply = await self._client.xreadgroup(
            CONSUMER_GROUP, consumer, {self.key(stream): ">"}, count=count, block=max(1, int(wait_seconds * 1000))
        )
        return [Delivery(_text(i), f[b"payload"], 1) for _, entries in reply or [] for i, f in entries]

    async def reclaim(self, stream: Stream, consumer: str) -> list[Delivery]:
        """Take again what this consumer held, counting the delivery."""
        key, taken, start = self.key(stream), [], "-"
        while pending := await self._client.xpending_range(key, CONSUMER_GROUP, start, "+", 256, consumername=consumer):
            ids = [entry["message_id"] for entry in pending]
            claimed = await self._client.xclaim(key, CONSUMER_GROUP, consumer, 0, ids)
            taken += await self._deliveries(stream, claimed)
            start = f"({_text(ids[-1])}"
        return taken

    async def hand_over(
        self, source: Stream, entry_id: str, target: Stream, payload: bytes, new_tokens: int = 0
    ) -> bool:
        """Move a group on, once."""
        keys = [self.key(source), self.key(target), self.ledger_key]
        return await self._run("hand_over", keys, [entry_id, payload, new_tokens])

    async def finish_trained(self, entry_ids: Sequence[str]) -> int:
        """Count labelled groups as trained."""
        if not entry_ids:
            return 0
        keys = [self.key(Stream.LABELED), self.ledger_key]
        return int(await self._operations["finish_trained"](keys=keys, args=list(entry_ids)))

    async def drop(self, stream: Stream, entry_id: str, reason: str) -> bool:
        """Count a group as dropped."""
        return await self._run("drop", [self.key(stream), self.ledger_key], [entry_id, reason])

    async def admit_again(self, stream: Stream, entry_id: str, prompt: bytes, reason: str) -> bool:
        """Drop a group and admit its prompt once more."""
        keys = [self.key(stream), self.key(Stream.PROMPTS), self.ledger_key]
        return await self._run("admit_again", keys, [entry_id, prompt, reason])

    async def dead_letter(self, stream: Stream, delivery: Delivery, reason: str) -> bool:
        """Keep the bytes, count the group as dropped."""
        keys = [self.key(stream), self.ledger_key, self.key(Stream.DEAD)]
        return await self._run("drop", keys, [delivery.entry_id, reason, delivery.payload])

    async def ledger(self) -> Ledger:
        """Read all counts in one step."""
        flat, in_flight = await self._operations["ledger"](
            keys=[self.ledger_key, *(self.key(stream) for stream in _PLACES)]
        )
        counts = {_text(name): int(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}
        dropped = {name.removeprefix("dropped:"): n for name, n in counts.items() if name.startswith("dropped:")}
        return Ledger(
            admitted=counts.get("admitted", 0),
            trained=counts.get("trained", 0),
            in_flight=int(in_flight),
            dropped=dropped,
            tokens_generated=counts.get("tokens", 0),
            next_sequence=counts.get("next_sequence", 0),
        )

    async def queue_lengths(self) -> Mapping[Stream, int]:
        """Groups in each stream."""
        pipeline = self._client.pipeline(transaction=False)
        for stream in Stream:
            pipeline.xlen(self.key(stream))
        return dict(zip(Stream, await pipeline.execute(), strict=True))

    async def _take_over(self, stream: Stream, consumer: str, count: int) -> list[Delivery]:
        """Claim idle groups, now and then: the look costs a round trip."""
        if time.monotonic() < self._next_claim.get(stream, 0.0):
            return []
        self._next_claim[stream] = time.monotonic() + CLAIM_INTERVAL_SECONDS
        reply = await self._client.xautoclaim(
            self.key(stream), CONSUMER_GROUP, consumer, self._claim_milliseconds, count=count
        )
        return await self._deliveries(stream, reply[1])

    async def _deliveries(self, stream: Stream, entries: Iterable[Any]) -> list[Delivery]:
        found = []
        for entry_id, fields in entries:
            if fields is None:  # finished by its former holder in the meantime
                continue
            pending = await self._client.xpending_range(self.key(stream), CONSUMER_GROUP, entry_id, entry_id, 1)
            if pending:
                found.append(Delivery(_text(entry_id), fields[b"payload"], int(pending[0]["times_delivered"])))
        return found

    async def _run(self, operation: str, keys: list[str], arguments: list[Any]) -> bool:
        return bool(await self._operations[operation](keys=keys, args=arguments))


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
