"""Compares what a run sent with what a test expects, without ever building an object of what was sent.

Untrusted keys are looked up in tables of trusted ones and never put into a table: numbers can be chosen to collide.
"""

from typing import Any

from services.verifier.sandbox.inside.wire import EXACT_INTEGERS, MAX_DEPTH

__all__ = ["matches"]

RELATIVE_TOLERANCE = 1e-9
MAX_INTEGER_DIGITS = 20_000
MAX_FLOAT_CHARACTERS = 64

Key = tuple[bool, Any]  # whether it is a boolean, since True == 1; and the value


class NotPlain(Exception):
    """What was sent is no number, text or tuple of such."""


def matches(wire: Any, expected: Any) -> bool:
    """Say whether a sent value, as in `inside/wire.py`, is the expected one.

    A list may stand for a tuple and back, as JSON rows have no tuples; a float may be off by 1e-9 of its size; a
    boolean is no integer and text no number.

    Args:
        wire: parsed JSON, as hostile as may be.
        expected: plain data of the test.

    """
    try:
        return _same(wire, expected, 0)
    except (NotPlain, ValueError, TypeError, OverflowError):
        return False


def _same(wire: Any, expected: Any, depth: int) -> bool:
    if depth > MAX_DEPTH:
        return False
    tag, body = _tagged(wire)
    if isinstance(expected, (list, tuple)):
        return _same_items(body if tag in ("", "t") else None, expected, depth)
    if isinstance(expected, dict):
        return tag == "d" and _same_pairs(body, expected, depth)
    if isinstance(expected, (set, frozenset)):
        return tag == "s" and _same_members(body, expected)
    return _same_scalar(_plain(wire, depth), expected)


def _tagged(wire: Any) -> tuple[str, Any]:
    if type(wire) is not dict:
        return "", wire
    if len(wire) != 1:
        raise NotPlain
    ((tag, body),) = wire.items()
    return tag, body


def _same_items(items: Any, expected: Any, depth: int) -> bool:
    if type(items) is not list or len(items) != len(expected):
        return False
    return all(_same(item, wanted, depth + 1) for item, wanted in zip(items, expected, strict=True))


def _same_pairs(pairs: Any, expected: dict[Any, Any], depth: int) -> bool:
    if type(pairs) is not list or len(pairs) != len(expected):
        return False
    left = {_key(key): value for key, value in expected.items()}
    for pair in pairs:
        if type(pair) is not list or len(pair) != 2:
            return False
        key = _key(_plain(pair[0], depth))
        if key not in left or not _same(pair[1], left.pop(key), depth + 1):
            return False
    return True


def _same_members(members: Any, expected: set[Any] | frozenset[Any]) -> bool:
    if type(members) is not list or len(members) != len(expected):
        return False
    left = {_key(member) for member in expected}
    for member in members:
        key = _key(_plain(member, 0))
        if key not in left:
            return False
        left.discard(key)
    return True


def _same_scalar(got: Any, expected: Any) -> bool:
    if isinstance(expected, bool) or isinstance(got, bool):
        return got is expected
    if isinstance(expected, float) or isinstance(got, float):
        if not (isinstance(got, (int, float)) and isinstance(expected, (int, float))):
            return False
        return got == expected or abs(got - expected) <= RELATIVE_TOLERANCE * max(1.0, abs(expected))
    return type(got) is type(expected) and bool(got == expected)


def _key(value: Any) -> Key:
    return isinstance(value, bool), value


def _plain(wire: Any, depth: int) -> Any:
    """A scalar, or a tuple of such; its size is bounded by the message's."""
    if depth > MAX_DEPTH:
        raise NotPlain
    tag, body = _tagged(wire)
    if tag == "":
        if body is None or type(body) in (bool, str) or (type(body) is int and abs(body) < EXACT_INTEGERS):
            return body
        raise NotPlain
    if tag == "t" and type(body) is list:
        return tuple(_plain(item, depth + 1) for item in body)
    if tag == "c" and type(body) is list and len(body) == 2:
        return complex(_float(body[0]), _float(body[1]))
    if type(body) is not str:
        raise NotPlain
    if tag == "i" and len(body) <= MAX_INTEGER_DIGITS:
        return int(body, 16)
    if tag == "f":
        return _float(body)
    if tag == "b":
        return bytes.fromhex(body)
    raise NotPlain


def _float(text: Any) -> float:
    if type(text) is not str or len(text) > MAX_FLOAT_CHARACTERS:
        raise NotPlain
    return float.fromhex(text)
