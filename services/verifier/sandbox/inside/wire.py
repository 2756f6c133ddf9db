"""Values as JSON with their exact types: what crosses the wall is plain data, and nothing else can be said.

| Python | JSON |
|---|---|
| None, True, "text", [..], small integers | themselves |
| integers beyond 2^53 | {"i": hexadecimal} |
| 1.5 | {"f": hexadecimal} |
| 1j | {"c": [hexadecimal, hexadecimal]} |
| b".." | {"b": hexadecimal} |
| (..) | {"t": [..]} |
| set, frozenset | {"s": [..]} |
| {..} | {"d": [[key, value], ..]} |
| anything else | {"o": number}: a reference that means something to its owner alone |
"""

from collections.abc import Callable
from typing import Any

__all__ = ["EXACT_INTEGERS", "MAX_DEPTH", "decode", "encode"]

EXACT_INTEGERS = 1 << 53
MAX_DEPTH = 200

Other = Callable[[Any, int], Any]


def encode(value: Any, other: Other, depth: int = 0) -> Any:
    """Write a value of exactly a built-in type; `other` writes what is of any other type.

    Args:
        value: what to write.
        other: gets the value and its depth.
        depth: containers around it.

    Raises:
        ValueError: nested deeper than `MAX_DEPTH`.

    """
    if depth > MAX_DEPTH:
        raise ValueError(f"values may be nested {MAX_DEPTH} deep")
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -EXACT_INTEGERS < value < EXACT_INTEGERS else {"i": hex(value)}
    if kind is float:
        return {"f": value.hex()}
    if kind is complex:
        return {"c": [value.real.hex(), value.imag.hex()]}
    if kind is bytes:
        return {"b": value.hex()}
    if kind is list:
        return [encode(item, other, depth + 1) for item in value]
    if kind is tuple:
        return {"t": [encode(item, other, depth + 1) for item in value]}
    if kind is set or kind is frozenset:
        return {"s": [encode(item, other, depth + 1) for item in value]}
    if kind is dict:
        return {"d": [[encode(k, other, depth + 1), encode(v, other, depth + 1)] for k, v in value.items()]}
    return other(value, depth)


def decode(wire: Any, refer: Callable[[int], Any]) -> Any:
    """Read a value; only for use behind the wall, where a hostile message costs its own process.

    Args:
        wire: parsed JSON.
        refer: makes an object of a reference's number.

    Raises:
        ValueError: no value is written like that.

    """
    if type(wire) is list:
        return [decode(item, refer) for item in wire]
    if type(wire) is not dict:
        return wire
    if len(wire) != 1:
        raise ValueError("a tagged value has one key")
    ((tag, body),) = wire.items()
    if tag == "o":
        return refer(body)
    if tag not in READERS:
        raise ValueError("unknown tag")
    return READERS[tag](body, lambda item: decode(item, refer))


Reader = Callable[[Any, Callable[[Any], Any]], Any]

READERS: dict[str, Reader] = {
    "i": lambda body, _: int(body, 16),
    "f": lambda body, _: float.fromhex(body),
    "c": lambda body, _: complex(float.fromhex(body[0]), float.fromhex(body[1])),
    "b": lambda body, _: bytes.fromhex(body),
    "t": lambda body, read: tuple(read(item) for item in body),
    "s": lambda body, read: {read(item) for item in body},
    "d": lambda body, read: {read(key): read(value) for key, value in body},
}
