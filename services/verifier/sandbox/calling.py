"""Calls a function that a run defines: plain data in, plain data back."""

from collections.abc import Sequence
from typing import Any

from services.verifier.sandbox.channel import Channel
from services.verifier.sandbox.inside.wire import encode

__all__ = ["call", "find_function"]


async def find_function(channel: Channel, name: str) -> int | None:
    """Ask for a function, or a method of a class `Solution`; None where the run has none.

    Raises:
        ChannelBroken: the run does not keep to the protocol.

    """
    value = (await channel.ask({"operation": "get", "name": name})).get("value")
    number = value.get("o") if type(value) is dict else None
    return number if type(number) is int else None


async def call(channel: Channel, function: int, arguments: Sequence[Any]) -> dict[str, Any]:
    """Call it; the reply has `value`, as in `inside/wire.py`, or `error`, and is as hostile as may be.

    Args:
        channel: conversation with a run of entry `calls`.
        function: from `find_function`.
        arguments: plain data.

    Raises:
        ChannelBroken: the run does not keep to the protocol.
        TypeError: an argument is no plain data.

    """
    encoded = [encode(argument, _not_plain) for argument in arguments]
    return await channel.ask(
        {"operation": "call", "object": function, "arguments": encoded, "named": {}, "arguments_back": False}
    )


def _not_plain(value: Any, _: int) -> Any:
    raise TypeError(f"an argument of type {type(value).__name__} cannot cross the wall")
