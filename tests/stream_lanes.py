"""One lane of streams as several worker processes see it, in memory or in Redis: what the shared test bodies run on."""

from pacs.transport import redis_streams
from pacs.transport.interface import Lane, Stream
from pacs.transport.memory import MemoryStreams
from pacs.transport.redis_streams import RedisStreams

WAIT = 5.0  # for what must come
MOMENT = 0.02  # for what must not


class MemoryLane:
    """Processes share the one object."""

    def __init__(self, claim_seconds):
        self._streams = MemoryStreams(claim_seconds)

    async def prepare(self):
        return self

    def process(self):
        return self._streams

    async def dead(self):
        return [entry.payload for entry in self._streams._streams[Stream.DEAD].values()]


class RedisLane:
    """Each process has an object of its own over the same keys."""

    def __init__(self, claim_seconds, client, run="lane", lane=Lane.TRAIN):
        self._open = lambda: RedisStreams(client, run, lane, claim_seconds)
        self._client = client

    async def prepare(self):
        await self._open().prepare()
        return self

    def process(self):
        return self._open()

    async def dead(self):
        entries = await self._client.xrange(self._open().key(Stream.DEAD))
        return [fields[b"payload"] for _, fields in entries]


def look_at_once(monkeypatch):
    """Let every read look for groups that others left lying, where it would do so once a second."""
    monkeypatch.setattr(redis_streams, "CLAIM_INTERVAL_SECONDS", 0.0)


async def admitted(streams, groups):
    for sequence in range(groups):
        assert await streams.admit(sequence, b"prompt %d" % sequence)
    return streams


async def take_one(streams, consumer, stream=Stream.PROMPTS):
    (delivery,) = await streams.read(stream, consumer, 1, WAIT)
    return delivery
