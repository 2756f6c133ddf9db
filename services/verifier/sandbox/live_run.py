"""One run as the judge holds it: its descriptors, its conversation, and the wait for its end."""

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

from services.verifier.sandbox.channel import Channel
from services.verifier.sandbox.runs import RunLimits, RunLost, RunResult

__all__ = ["LiveRun", "sealed_file"]

SEALED = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
KEPT_STDERR_BYTES = 4096
END_SECONDS = 10.0


class LiveRun:
    """A run that has been asked for.

    Args:
        limits: what it may use.
        isolation: mode of the sandbox.
        talks: whether it has a conversation with the judge.
        kill: asks the zygote to end the run now.

    """

    def __init__(self, limits: RunLimits, isolation: str, talks: bool, kill: Callable[[], None]) -> None:
        self._limits = limits
        self._isolation = isolation
        self._kill = kill
        self._stdout = os.memfd_create("stdout")
        self._stderr = os.memfd_create("stderr")
        self.for_child = [self._stdout, self._stderr]
        self.ended: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._channel = self._open_channel() if talks else None

    @property
    def channel(self) -> Channel:
        """The conversation of a run that has one."""
        assert self._channel is not None
        return self._channel

    def handed_over(self) -> None:
        """Close what only the child is to hold; its end then closes the conversation."""
        for descriptor in self.for_child[2:]:
            os.close(descriptor)
        del self.for_child[2:]

    async def result(self, *, kill: bool = False) -> RunResult:
        """Wait for the end.

        Args:
            kill: end it now: whatever it still does is of no interest.

        Raises:
            RunLost: the run never began, was killed by somebody else, or the zygote does not answer.

        """
        if kill and not self.ended.done():
            self._kill()
        try:
            async with asyncio.timeout(self._limits.wall_seconds + END_SECONDS):
                report = await asyncio.shield(self.ended)
        except TimeoutError:
            raise RunLost(f"waited {self._limits.wall_seconds + END_SECONDS:g} s for a run to end, in vain") from None
        if "failed" in report or not report["locked"]:
            raise RunLost(f"a run did not begin: {report.get('failed') or _last_line(self._tail(self._stderr))}")
        return self._result(report)

    def close(self) -> None:
        """Close every descriptor; may be called again."""
        self.handed_over()
        for descriptor in self.for_child:
            os.close(descriptor)
        self.for_child = []
        if self._channel is not None:
            self._channel.close()

    def _open_channel(self) -> Channel:
        requests, ours_out = os.pipe()
        ours_in, replies = os.pipe()
        self.for_child += [requests, replies]
        return Channel(ours_out, ours_in, self._limits.output_bytes)

    def _result(self, report: Mapping[str, Any]) -> RunResult:
        return RunResult(
            status=self._status(report),
            stdout=os.pread(self._stdout, self._limits.output_bytes, 0),
            stderr=self._tail(self._stderr),
            cpu_seconds=report["cpu_seconds"],
            wall_seconds=report["wall_seconds"],
            peak_bytes=report["peak_bytes"],
            isolation=self._isolation,
        )

    def _status(self, report: Mapping[str, Any]) -> str:
        code = os.waitstatus_to_exitcode(report["status"])
        longest = max(os.fstat(self._stdout).st_size, os.fstat(self._stderr).st_size)
        if longest >= self._limits.output_bytes:
            return "output_limit"
        if report["killed"] and code == -signal.SIGKILL:
            return "wall_limit" if report["killed"] == "wall" else "ended"
        if code == -signal.SIGXCPU:
            return "cpu_limit"
        if code == -signal.SIGKILL:
            if report["cpu_seconds"] < self._limits.cpu_seconds / 2:  # no program can do this to itself
                raise RunLost("a run was killed from outside; is the machine out of memory?")
            return "cpu_limit"
        if code < 0:
            return "signal"
        return "runtime_error" if code else "ok"

    def _tail(self, descriptor: int) -> bytes:
        size = os.fstat(descriptor).st_size
        return os.pread(descriptor, KEPT_STDERR_BYTES, max(0, size - KEPT_STDERR_BYTES))


def sealed_file(data: bytes) -> int:
    """Make a file in memory that nobody can change any more; returns its descriptor, at the start."""
    descriptor = os.memfd_create("data", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALED)
    return descriptor


def _last_line(text: bytes) -> str:
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it ended before it was locked down"
