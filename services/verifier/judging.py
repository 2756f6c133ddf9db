"""Runs one check so that whatever a checker does ends in a judgement."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from pacs.errors import BadInput
from services.verifier.checkers.interface import Judgement, judged

__all__ = ["judge"]

log = logging.getLogger(__name__)

CHECK_SECONDS = 900.0
"""Longer than a built-in checker's own deadlines together; a plug-in that never answers ends here."""


async def judge(check: Callable[[], Awaitable[Judgement]], subject: str, seconds: float = CHECK_SECONDS) -> Judgement:
    """Wait for a check; its failure is the infrastructure's, status error or timeout, never a wrong answer.

    Args:
        check: calls a checker's `check` or `check_gold`.
        subject: what is judged, with ids, for the log.
        seconds: wall time at most.

    Raises:
        BadInput: the row cannot be judged.

    """
    started = time.perf_counter()
    try:
        async with asyncio.timeout(seconds):
            return _checked(await check())
    except BadInput:
        raise
    except TimeoutError:
        log.error("waited %g s for the check of %s, in vain; it is not judged", seconds, subject)
        return judged(started, "timeout", "none")
    except Exception:  # a checker may be somebody else's code; the sample is not to pay for it
        log.exception("the check of %s failed; it is not judged", subject)
        return judged(started, "error", "none")


def _checked(judgement: object) -> Judgement:
    if not isinstance(judgement, Judgement):
        raise TypeError(f"a checker returns a Judgement, got {judgement!r}")  # a plug-in need not be typed
    return judgement
