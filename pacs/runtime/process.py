"""The life of one service process: signals, exit codes, logging, and what a user sees when it cannot start."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn, TypeVar

from pacs.errors import BadInput, PacsError
from pacs.runtime.family import exit_with_parent
from pacs.runtime.service_settings import ServiceSettings

__all__ = [
    "EXIT_BAD_INPUT",
    "EXIT_FAILED",
    "EXIT_KILLED",
    "configure_logging",
    "exit_code_of",
    "leave",
    "load_settings",
    "run_service",
    "stop_on_signals",
]

EXIT_BAD_INPUT = 2
EXIT_FAILED = 70  # EX_SOFTWARE
EXIT_KILLED = 130  # a second signal

S = TypeVar("S", bound=ServiceSettings)

logger = logging.getLogger(__name__)


def configure_logging(service: str) -> None:
    """Send log lines of this process to stderr, marked with its name."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format=f"%(asctime)s {service} %(levelname)s %(name)s: %(message)s"
    )
    for noisy in ("httpx", "uvicorn.access", "httpcore"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def stop_on_signals(stop: Callable[[], object]) -> None:
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


def run_service(service: str, settings_class: type[S], main: Callable[[S, asyncio.Event], Awaitable[None]]) -> int:
    """Run an asyncio service until it ends or is told to stop; returns the exit code.

    The configuration's path is the process's one argument.

    Args:
        service: its name, for the log.
        settings_class: what to read before anything heavy is imported.
        main: gets the settings and the event that says stop; returns when it has stopped.

    """
    configure_logging(service)
    exit_with_parent()

    async def supervised(settings: S) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        stop_on_signals(lambda: loop.call_soon_threadsafe(stop.set))
        await main(settings, stop)

    return exit_code_of(lambda: asyncio.run(supervised(load_settings(service, settings_class))))


def load_settings(service: str, settings_class: type[S]) -> S:
    """Read the settings named by the command line.

    Raises:
        BadInput: no configuration given, or it is wrong.

    """
    if len(sys.argv) != 2:
        raise BadInput(f"a service needs the run's configuration: python -m services.{service} CONFIG")
    return settings_class.load(Path(sys.argv[1]))


def leave(code: int) -> NoReturn:
    """End the process now that all is closed.

    Python would first take apart every module, which with a model library loaded costs seconds of a stop's budget.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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
