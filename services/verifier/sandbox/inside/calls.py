"""Answers the judge's questions about what a program defines: look a name up, call it, read its results.

Everything here runs beside the program and may be bent by it; nothing it says is more than the program's own claim.
"""

import os
from collections.abc import Callable
from json import dumps, loads
from typing import Any

from services.verifier.sandbox.inside.wire import decode, encode

__all__ = ["REPLIES", "REQUESTS", "serve"]

REQUESTS, REPLIES = 3, 4  # descriptors
MAX_ITEMS = 200_000  # of an iterator, which may have no end
MAX_TEXT = 200
MAX_BASES = 6


def serve(names: dict[str, Any], message_bytes: int) -> None:
    """Answer one line with one line until the judge closes its end.

    Args:
        names: the program's global names.
        message_bytes: longest answer; a longer one is replaced by an OverflowError.

    """
    objects = Objects(names)
    with os.fdopen(REQUESTS, "rb") as lines:
        for line in lines:
            answer = dumps(objects.answer(loads(line))).encode()
            if len(answer) >= message_bytes:
                answer = dumps({"error": "OverflowError", "message": "the value is too large", "bases": []}).encode()
            _write(answer + b"\n")


class Objects:
    """The objects that answers have referred to, by number."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._objects: list[Any] = []
        self._operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "get": lambda request: self._value(self._lookup(request["name"])),
            "call": self._call,
            "attribute": lambda request: self._value(getattr(self._of(request), request["name"])),
            "item": lambda request: self._value(self._of(request)[self._decoded(request["key"])]),
            "items": lambda request: {"value": self._listed(self._of(request), 0)},
            "truth": lambda request: {"value": bool(self._of(request))},
            "length": lambda request: {"value": len(self._of(request))},
            "text": lambda request: {"value": str(self._of(request))},
        }

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one request; an exception of the program is an answer too."""
        try:
            return self._operations[request["operation"]](request)
        except Exception as error:  # whatever the program raises
            bases = [base.__name__ for base in type(error).__mro__][:MAX_BASES]
            return {"error": type(error).__name__, "message": str(error)[:MAX_TEXT], "bases": bases}

    def _lookup(self, name: str) -> Any:
        if name in self._names:
            return self._names[name]
        if hasattr(self._names.get("Solution"), name):
            return getattr(self._names["Solution"](), name)
        raise NameError(name)

    def _call(self, request: dict[str, Any]) -> dict[str, Any]:
        arguments = [self._decoded(argument) for argument in request["arguments"]]
        named = {name: self._decoded(argument) for name, argument in request["named"].items()}
        answer = self._value(self._of(request)(*arguments, **named))
        if request["arguments_back"]:
            changeable = (list, dict, set)
            answer["arguments"] = [encode(a, self._other) if isinstance(a, changeable) else None for a in arguments]
        return answer

    def _value(self, value: Any) -> dict[str, Any]:
        return {"value": self._refer(value) if callable(value) else encode(value, self._other)}

    def _other(self, value: Any, depth: int) -> Any:
        """Flatten subclasses of plain types and iterators; refer to the rest."""
        if isinstance(value, dict):
            return {"d": [[encode(k, self._other, depth + 1), encode(v, self._other, depth + 1)]
                          for k, v in dict.items(value)]}  # fmt: skip
        if isinstance(value, int):
            return encode(int.__index__(value), self._other, depth)
        if isinstance(value, float):
            return {"f": float.hex(value)}
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, tuple):
            return {"t": [encode(item, self._other, depth + 1) for item in tuple.__iter__(value)]}
        if isinstance(value, list) or hasattr(value, "__next__"):
            return self._listed(value, depth)
        return self._refer(value)

    def _listed(self, value: Any, depth: int) -> list[Any]:
        items = []
        for item in value:
            items.append(encode(item, self._other, depth + 1))
            if len(items) > MAX_ITEMS:
                raise OverflowError(f"more than {MAX_ITEMS} items")
        return items

    def _refer(self, value: Any) -> dict[str, int]:
        self._objects.append(value)
        return {"o": len(self._objects) - 1}

    def _of(self, request: dict[str, Any]) -> Any:
        return self._objects[request["object"]]

    def _decoded(self, wire: Any) -> Any:
        return decode(wire, lambda number: self._objects[number])


def _write(data: bytes) -> None:
    while data:
        data = data[os.write(REPLIES, data) :]
