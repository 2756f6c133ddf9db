"""Runs a program as `python solution.py` would, in this very process."""

import atexit
import builtins
import io
import os
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any

__all__ = ["open_standard_streams", "run"]

NAME = "solution.py"
Names = dict[str, Any]


def open_standard_streams() -> None:
    """Put fresh text streams over descriptors 0 to 2; the zygote's own lead nowhere."""
    sys.stdin = sys.__stdin__ = _text(io.BufferedReader(io.FileIO(0)), "surrogateescape")  # type: ignore[misc]  # Final for others
    sys.stdout = sys.__stdout__ = _text(io.BufferedWriter(io.FileIO(1, "w")), "surrogateescape")  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _text(io.BufferedWriter(io.FileIO(2, "w")), "backslashreplace")  # type: ignore[misc]


def run(source: str, serve: Callable[[Names], None] | None = None) -> int:
    """Execute a program as `__main__`, let `serve` use what it defines, and return its exit status.

    Args:
        source: the program's text.
        serve: called with the program's names once it has run to its end.

    """
    module = types.ModuleType("__main__")
    module.__dict__.update(__builtins__=builtins, __file__=NAME)
    sys.modules["__main__"] = module
    sys.argv = [NAME]
    status = _guarded(lambda: _execute(source, module.__dict__, serve))
    status = _guarded(threading._shutdown) or status  # type: ignore[attr-defined]  # waits for threads, as at exit
    status = _guarded(atexit._run_exitfuncs) or status
    _guarded(lambda: sys.stderr.flush())
    return _guarded(lambda: sys.stdout.flush()) or status


def _execute(source: str, names: Names, serve: Callable[[Names], None] | None) -> None:
    exec(compile(source, NAME, "exec"), names)  # noqa: S102  # this process exists to do so, and has no rights left
    if serve is not None:
        serve(names)


def _guarded(step: Callable[[], object]) -> int:
    """Exit status of one step; whatever a program raises, the next step still happens."""
    try:
        step()
    except SystemExit as leaving:
        return _status_of(leaving)
    except BaseException:  # a program may raise anything, and a KeyboardInterrupt of its own making is none of ours
        _report()
        return 1
    return 0


def _status_of(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    return leaving.code & 0xFF if isinstance(leaving.code, int) else 1


def _report() -> None:
    os.write(2, traceback.format_exc(limit=-8)[-4096:].encode("utf-8", "backslashreplace"))


def _text(raw: io.BufferedIOBase, errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(raw, encoding="utf-8", errors=errors)  # type: ignore[arg-type]  # reader or writer
