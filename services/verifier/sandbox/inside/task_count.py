"""How many tasks the kernel counts for this user: the limit on a run's threads is laid on top of that number.

Where runs share a user with the service, RLIMIT_NPROC counts the service's threads as well, those in other containers
of the host included, which nobody lists. The kernel tells by refusing a fork under a limit that is already reached.
"""

import os
import resource

__all__ = ["TaskCount"]

SPARE = 8  # tasks that others may start while a run is on
MOST = 1 << 20


class TaskCount:
    """Follows the count with one fork a run."""

    def __init__(self) -> None:
        self._hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        self._estimate = self._measure()

    @property
    def estimate(self) -> int:
        """Tasks of this user, a few more rather than fewer."""
        return self._estimate + SPARE

    def fork(self) -> int:
        """Fork as `os.fork` does, correcting the estimate on the way.

        Raises:
            BlockingIOError: the user may have no more tasks at all.

        """
        while True:
            self._limit(self._estimate)
            try:
                pid = os.fork()
            except BlockingIOError:
                if self._estimate >= self._most():
                    raise
                self._estimate = min(self._estimate + SPARE, self._most())
                continue
            if pid:
                self._estimate = max(self._estimate - 1, 1)
            return pid

    def _measure(self) -> int:
        """Bisect to within `SPARE`."""
        low, high = 1, 64
        while high < self._most() and not self._may_fork(high):
            low, high = high, min(high * 2, self._most())
        while high - low > SPARE:
            middle = (low + high) // 2
            low, high = (low, middle) if self._may_fork(middle) else (middle, high)
        return high

    def _may_fork(self, limit: int) -> bool:
        self._limit(limit)
        try:
            pid = os.fork()
        except BlockingIOError:
            return False
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        return True

    def _most(self) -> int:
        return MOST if self._hard == resource.RLIM_INFINITY else self._hard

    def _limit(self, soft: int) -> None:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, self._hard))
