"""Runs assert tests in a process of their own: the solution's names are proxies, and its objects never come here.

A comparison that an object of the solution would decide is refused: the test cannot be judged.
"""

import builtins
import os
from json import dumps, loads
from typing import Any, NoReturn

from services.verifier.sandbox.inside.calls import REPLIES, REQUESTS
from services.verifier.sandbox.inside.wire import decode, encode

__all__ = ["judge"]

LET_THE_OBJECT_DECIDE = (
    "eq", "ne", "lt", "le", "gt", "ge", "hash", "index", "int", "float", "complex", "abs", "neg", "pos",
    "round", "invert", "instancecheck", "subclasscheck",
    *(f"{side}{name}" for side in ("", "r") for name in (
        "add", "sub", "mul", "truediv", "floordiv", "mod", "divmod", "pow", "and", "or", "xor", "lshift", "rshift",
        "matmul")),
)  # fmt: skip


class Unjudgeable(BaseException):
    """A test wants the solution to judge itself; not an Exception, so that no test catches it by accident."""


def judge(source: str) -> None:
    """Execute the tests and tell the judge what came of it; the first line from there names the solution's names.

    Args:
        source: the tests.

    """
    line = Line()
    try:
        names = {name: value for name in line.read()["names"] for value in line.look_up(name)}
        exec(compile(source, "tests.py", "exec"), {"__name__": "tests", **names})  # noqa: S102  # trusted, and walled in
        verdict = "passed"
    except AssertionError:
        verdict = "wrong_answer"
    except Unjudgeable:
        verdict = "unjudgeable"
    except SystemExit:  # of the tests: they are to say what is wrong by an assertion
        verdict = "tests_exited"
    except Exception:  # of the solution, handed on by its proxy, or because it lacks what the tests use
        verdict = "runtime_error"
    line.write({"verdict": "unjudgeable" if line.refused else verdict})


class Line:
    """The way to the solution, by way of the judge."""

    def __init__(self) -> None:
        self._lines = os.fdopen(REQUESTS, "rb")
        self.refused = False

    def look_up(self, name: str) -> list[Any]:
        """The value of a name, or nothing where the solution has none."""
        try:
            return [self.ask("get", name=name)]
        except NameError:
            return []

    def ask(self, operation: str, **request: Any) -> Any:
        """Put one question and return the value; what the solution raised is raised here."""
        return self.value(self.answer(operation, **request)["value"])

    def answer(self, operation: str, **request: Any) -> dict[str, Any]:
        """Put one question and return the whole answer."""
        self.write({"question": {"operation": operation, **request}})
        answer = self.read()
        if "error" in answer:
            raise _exception(answer)
        return answer

    def value(self, wire: Any) -> Any:
        """Read a value, with proxies for what is no plain data."""
        return decode(wire, lambda number: Proxy(self, number))

    def wire(self, value: Any) -> Any:
        """Write an argument."""
        return encode(value, self._other)

    def refuse(self, why: str) -> NoReturn:
        """Give up on these tests, also if they catch what is raised."""
        self.refused = True
        raise Unjudgeable(why)

    def read(self) -> dict[str, Any]:
        """The next message; the judge kills this process when there will be none."""
        message = loads(self._lines.readline())
        if type(message) is not dict:
            self.refuse("the solution broke the protocol")
        return message

    def write(self, message: dict[str, Any]) -> None:
        """Send one message."""
        data = dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(REPLIES, data) :]

    def _other(self, value: Any, depth: int) -> Any:
        if type(value) is Proxy:
            return {"o": object.__getattribute__(value, "_number")}
        if isinstance(value, (range, map, zip, filter)):
            return encode(list(value), self._other, depth)
        return self.refuse(f"an argument of type {type(value).__name__} cannot cross the wall")


class Proxy:
    """Stands for an object of the solution."""

    def __init__(self, line: Line, number: int) -> None:
        object.__setattr__(self, "_line", line)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        line = object.__getattribute__(self, "_line")
        answer = line.answer(
            "call",
            object=object.__getattribute__(self, "_number"),
            arguments=[line.wire(argument) for argument in arguments],
            named={name: line.wire(argument) for name, argument in named.items()},
            arguments_back=True,
        )
        for mine, theirs in zip(arguments, answer.get("arguments", ()), strict=False):
            _take_over(mine, line.value(theirs))
        return line.value(answer["value"])

    def __getattr__(self, name: str) -> Any:
        return _ask(self, "attribute", name=name)

    def __getitem__(self, key: Any) -> Any:
        return _ask(self, "item", key=object.__getattribute__(self, "_line").wire(key))

    def __iter__(self) -> Any:
        items = _ask(self, "items")
        return iter(items) if type(items) is list else _refuse(self)

    def __bool__(self) -> bool:
        truth = _ask(self, "truth")
        return truth if type(truth) is bool else _refuse(self)

    def __len__(self) -> int:
        length = _ask(self, "length")
        return length if type(length) is int else _refuse(self)

    def __str__(self) -> str:
        text = _ask(self, "text")
        return text if type(text) is str else _refuse(self)


def _refuse(self: Proxy, *_: object) -> NoReturn:
    line: Line = object.__getattribute__(self, "_line")
    line.refuse("the solution's own object would decide")


for _name in LET_THE_OBJECT_DECIDE:
    setattr(Proxy, f"__{_name}__", _refuse)


def _ask(proxy: Proxy, operation: str, **request: Any) -> Any:
    number = object.__getattribute__(proxy, "_number")
    return object.__getattribute__(proxy, "_line").ask(operation, object=number, **request)


def _take_over(mine: Any, theirs: Any) -> None:
    """Show the tests what the solution did to an argument."""
    if type(mine) is type(theirs) is list:
        mine[:] = theirs
    elif type(mine) is type(theirs) in (dict, set):
        mine.clear()
        mine.update(theirs)


def _exception(answer: dict[str, Any]) -> Exception:
    """The nearest built-in exception to what the solution raised."""
    for name in (answer["error"], *answer.get("bases", ())):
        kind = getattr(builtins, str(name), None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return kind(str(answer.get("message", "")))
            except TypeError:  # UnicodeError's children want more arguments
                continue
    return Exception(str(answer.get("message", "")))
