"""The processes of ranks 1…N-1 on rank 0's machine: started, watched, ended.

They die with rank 0 (`pacs.runtime.family`), and rank 0 ends when one of them does: within seconds, not at some
collective's deadline.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping

from pacs.errors import ServiceFailed
from pacs.runtime.family import PARENT_VARIABLE
from pacs.runtime.process import EXIT_FAILED

__all__ = ["FOLLOWER", "RankProcesses"]

FOLLOWER = (sys.executable, "-m", "services.learner.follower")
POLL_SECONDS = 0.1
STOP_SECONDS = 30.0  # for the followers to end after they were told to
LAST_RESORT_SECONDS = 15.0  # a thread inside NCCL cannot be told anything: end the process then

logger = logging.getLogger(__name__)


class RankProcesses:
    """See the module.

    Args:
        on_lost: called on a thread of its own when a rank ends unasked; rank 0 has LAST_RESORT_SECONDS to end itself.

    """

    def __init__(self, on_lost: Callable[[ServiceFailed], object]) -> None:
        self._on_lost = on_lost
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lost: ServiceFailed | None = None
        self._is_lost = threading.Event()
        self._closing = threading.Event()
        self._watch = threading.Thread(target=self._watch_until_closed, name="ranks", daemon=True)

    def start(self, ranks: int, environment: Mapping[str, str], command: tuple[str, ...] = FOLLOWER) -> None:
        """Start ranks 1 to ranks-1.

        Args:
            ranks: all of them, rank 0 included.
            environment: what tells them where rank 0 is.
            command: of one of them.

        """
        for rank in range(1, ranks):
            names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, PARENT_VARIABLE: os.getpid()}
            own = {name: str(value) for name, value in names.items()}
            self._processes[rank] = subprocess.Popen(
                command, env={**os.environ, **environment, **own}, stdin=subprocess.DEVNULL
            )
        self._watch.start()

    def raise_if_lost(self) -> None:
        """Raise what is known about a rank that has ended.

        Raises:
            ServiceFailed: one has.

        """
        if self._lost is not None:
            raise self._lost

    def lost_within(self, seconds: float) -> ServiceFailed | None:
        """Wait for the news that a rank has ended; None if all live on."""
        self._is_lost.wait(seconds)
        return self._lost

    def close(self, dismiss: Callable[[], object] | None) -> None:
        """End the ranks: those that `dismiss` tells to get some time for it, without it they are killed."""
        self._closing.set()
        deadline = time.monotonic()
        if dismiss is not None:
            dismiss()
            deadline += STOP_SECONDS
        for rank, process in self._processes.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                if dismiss is not None:
                    logger.warning("learner rank %d did not stop within %g s and is killed", rank, STOP_SECONDS)
                process.kill()
                process.wait()

    def _watch_until_closed(self) -> None:
        while not self._closing.wait(POLL_SECONDS):
            for rank, process in self._processes.items():
                if (code := process.poll()) is not None and not self._closing.is_set():
                    self._report(rank, process.pid, code)
                    return

    def _report(self, rank: int, pid: int, code: int) -> None:
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._lost = ServiceFailed(
            f"learner rank {rank} (process {pid}) {how} while it was needed; what it said is in this log, and the same "
            "command continues from the newest checkpoint"
        )
        self._is_lost.set()
        logger.error("%s", self._lost)
        self._on_lost(self._lost)
        if not self._closing.wait(LAST_RESORT_SECONDS):
            logger.error("rank 0 is held in a collective: ending it")
            os._exit(EXIT_FAILED)
