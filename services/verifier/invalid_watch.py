"""Fail closed: a run whose verdicts are mostly time-outs and errors is paused before it trains on the rest."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Literal

from pacs.runtime.tasks import end_tasks

__all__ = ["InvalidWatch", "Pause"]

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
EVERY_ATTEMPTS = 30  # of which one is logged, after the first

Pause = Callable[[str], Awaitable[bool]]
"""Asks for the run to be paused, for a reason; says whether that was heard."""


class InvalidWatch:
    """Counts the verdicts that judge nothing among the last ones, and pauses the run when they are too many.

    Waits for / is unblocked by: a share of invalid verdicts over the limit / control, which heard the pause.

    Args:
        window: last verdicts that count.
        max_share: share of them that may be invalid.
        pause: see `Pause`; asked again until it is heard.

    """

    def __init__(self, window: int, max_share: float, pause: Pause) -> None:
        self._window = window
        self._max_share = max_share
        self._pause = pause
        self._last: deque[bool] = deque(maxlen=window)
        self._reasons: asyncio.Queue[str] = asyncio.Queue()
        self.pauses = 0

    @property
    def share(self) -> float:
        """Invalid verdicts as a share of the window; a window that is not full yet has none in its empty part."""
        return sum(self._last) / self._window

    def observe(self, *, invalid: bool) -> None:
        """Count a verdict; a pause begins a new window, so that a resumed run is measured afresh."""
        self._last.append(invalid)
        if not invalid or self.share <= self._max_share:
            return
        reason = (
            f"{sum(self._last)} of the last {len(self._last)} verdicts are time-outs or errors "
            f"(verifier.max_invalid_share={self._max_share:g} of {self._window}); see the verifier's log, then resume"
        )
        log.error("grading has failed: %s; pausing the run", reason)
        self._last.clear()
        self._reasons.put_nowait(reason)

    async def run(self, stop: asyncio.Event) -> None:
        """Ask for a pause whenever there is a reason, until told to stop."""
        stopped = asyncio.ensure_future(stop.wait())
        insisting = asyncio.ensure_future(self._insist_forever(stopped))
        try:
            await asyncio.wait({stopped, insisting}, return_when=asyncio.FIRST_COMPLETED)
            if insisting.done():
                insisting.result()
        finally:
            await end_tasks([stopped, insisting])

    async def _insist_forever(self, stopped: "asyncio.Future[Literal[True]]") -> None:
        while True:
            await self._insist(await self._reasons.get(), stopped)

    async def _insist(self, reason: str, stopped: "asyncio.Future[Literal[True]]") -> None:
        attempt = 0
        while not stopped.done():
            if await self._pause(reason):
                self.pauses += 1
                log.error("the run is paused: %s", reason)
                return
            if attempt % EVERY_ATTEMPTS == 0:
                log.error("control did not hear the pause; asking again every %g s", RETRY_SECONDS)
            attempt += 1
            await asyncio.wait({stopped}, timeout=RETRY_SECONDS)
