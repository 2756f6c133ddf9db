"""The life of one service process: signals, exit codes, logging, and what a user sees when it cannot start."""

import asyncio
import ctypes
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from types import FrameType

from pacs.errors import BadInput, PacsError

__all__ = [
    "EXIT_BAD_INPUT",
    "EXIT_FAILED",
    "EXIT_KILLED",
    "configure_logging",
    "exit_with_parent",
    "run_service",
    "stop_on_signals",
]

EXIT_BAD_INPUT = 2
EXIT_FAILED = 70  # EX_SOFTWARE
EXIT_KILLED = 130  # a second signal

PR_SET_PDEATHSIG = 1

logger = logging.getLogger(__name__)


def configure_logging(service: str) -> None:
    """Send log lines of this process to stderr, marked with its name."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format=f"%(asctime)s {service} %(levelname)s %(name)s: %(message)s"
    )
    for noisy in ("httpx", "uvicorn.access", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def exit_with_parent() -> None:
    """Ask the kernel for SIGTERM when the parent dies, if the parent said so by PACS_EXIT_WITH_PARENT=<its pid>.

    A run started by `pacs run` must not outlive it, not even when that was killed with SIGKILL.
    """
    parent = os.environ.get("PACS_EXIT_WITH_PARENT")
    if parent is None or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it died before we asked
        raise SystemExit(EXIT_FAILED)


def stop_on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at the first SIGTERM or SIGINT, end the process at once at the second."""
    signalled = False

    def on_signal(number: int, _frame: FrameType | None) -> None:
        nonlocal signalled
        if signalled:
            os._exit(EXIT_KILLED)
        signalled = True
        logger.info("got %s: stopping; a second signal ends the process at once", signal.Signals(number).name)
        stop()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)


def run_service(service: str, main: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Run an asyncio service until it ends or is told to stop; returns the exit code.

    Args:
        service: its name, for the log.
        main: gets the event that says stop; returns when it has stopped.

    """
    configure_logging(service)
    exit_with_parent()

    async def supervised() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        stop_on_signals(lambda: loop.call_soon_threadsafe(stop.set))
        await main(stop)

    return exit_code_of(lambda: asyncio.run(supervised()))


def exit_code_of(body: Callable[[], None]) -> int:
    """Run `body` and turn the project's own errors into a sentence on stderr and an exit code."""
    try:
        body()
    except* BadInput as group:
        for error in _leaves(group):
            sys.stderr.write(f"error: {error}\n")
        return_code = EXIT_BAD_INPUT
    except* PacsError as group:
        for error in _leaves(group):
            logger.error("%s", error)
        return_code = EXIT_FAILED
    else:
        return_code = 0
    return return_code


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
