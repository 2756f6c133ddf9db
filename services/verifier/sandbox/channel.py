"""The judge's end of a conversation with a run: lines of JSON over two pipes, none longer than agreed."""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Channel", "ChannelBroken", "parsed"]

CHUNK_BYTES = 1 << 16
MESSAGES_WORTH = 16  # in all, a run may say so many times its longest message


class ChannelBroken(Exception):
    """The run does not keep to the protocol.

    Args:
        why: closed, output_limit or malformed.

    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Channel:
    """One conversation; the run's end of wall time closes the pipes, which ends every wait here.

    Args:
        requests: where to write; owned by the channel.
        replies: where to read; owned by the channel.
        message_bytes: longest line accepted.

    """

    def __init__(self, requests: int, replies: int, message_bytes: int) -> None:
        self._requests = requests
        self._replies = replies
        self._message_bytes = message_bytes
        self._left = message_bytes * MESSAGES_WORTH
        self._buffer = bytearray()
        for descriptor in (requests, replies):
            os.set_blocking(descriptor, False)

    async def ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Send one message and parse the answer, which must be a JSON object.

        Raises:
            ChannelBroken: there is none, or it is something else.

        """
        await self.write(json.dumps(message).encode())
        return parsed(await self.read())

    async def write(self, line: bytes) -> None:
        """Send one line.

        Raises:
            ChannelBroken: the run has closed its end.

        """
        rest = memoryview(line + b"\n")
        loop = asyncio.get_running_loop()
        while rest:
            try:
                rest = rest[os.write(self._requests, rest) :]
            except BlockingIOError:
                await _until(loop.add_writer, loop.remove_writer, self._requests)
            except BrokenPipeError:
                raise ChannelBroken("closed") from None

    async def read(self) -> bytes:
        """Receive one line.

        Raises:
            ChannelBroken: the run has closed its end, or says too much.

        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > self._message_bytes or self._left <= 0:
                raise ChannelBroken("output_limit")
            self._buffer += await self._chunk()
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def close(self) -> None:
        """Close both ends; may be called again."""
        for descriptor in (self._requests, self._replies):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._requests = self._replies = -1

    async def _chunk(self) -> bytes:
        loop = asyncio.get_running_loop()
        while True:
            try:
                data = os.read(self._replies, CHUNK_BYTES)
            except BlockingIOError:
                await _until(loop.add_reader, loop.remove_reader, self._replies)
                continue
            if not data:
                raise ChannelBroken("closed")
            self._left -= len(data)
            return data


def parsed(line: bytes) -> dict[str, Any]:
    """Parse a line as a JSON object; a hostile one costs no more than its length.

    Raises:
        ChannelBroken: it is none.

    """
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise ChannelBroken("malformed") from None
    if type(message) is not dict:
        raise ChannelBroken("malformed")
    return message


async def _until(add: Callable[..., object], remove: Callable[[int], object], descriptor: int) -> None:
    ready = asyncio.get_running_loop().create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    add(descriptor, tell)
    try:
        await ready
    finally:
        remove(descriptor)
