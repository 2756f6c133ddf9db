"""One worker process as its owner sees it: start it, ask it one thing at a time, kill it."""

import asyncio
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import services
from pacs.errors import DeadlineExceeded, ServiceFailed
from services.verifier.checkers.worker_loop import WITHOUT_WALLS

__all__ = ["WorkerDied", "WorkerProcess"]

POLL_SECONDS = 0.05
LONGEST_LOOK_SECONDS = 4 * POLL_SECONDS
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
MAX_REPLY_BYTES = 1 << 16
REAP_SECONDS = 10.0
SLOW_SHARE = 0.25
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class WorkerDied(ServiceFailed):
    """A worker ended, or broke its protocol, before it answered."""


class WorkerProcess:
    """A running worker; not safe for two requests at once."""

    def __init__(self, module: str, process: asyncio.subprocess.Process) -> None:
        self._module = module
        self._process = process
        self._requests = 0

    @classmethod
    async def spawn(cls, module: str, *, walls: bool = True) -> "WorkerProcess":
        """Start `python -m module` with an empty environment but for what Python itself needs.

        Args:
            module: what is run.
            walls: whether it is to wall itself in before it answers.

        """
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-s",
            "-P",
            "-m",
            module,
            *(() if walls else (WITHOUT_WALLS,)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(),
            cwd="/",
            limit=MAX_REPLY_BYTES,
        )
        return cls(module, process)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process has not been seen to end."""
        return self._process.returncode is None

    async def wait_ready(self, seconds: float) -> None:
        """Wait until the worker has imported what it needs.

        Raises:
            DeadlineExceeded: it took longer than `seconds`.
            WorkerDied: it says why it does not start, or ended instead; its error then went to this process's stderr.

        """
        try:
            async with asyncio.timeout(seconds):
                message = await self._read()
        except TimeoutError:
            raise DeadlineExceeded(f"worker {self._module} to start", seconds) from None
        if "failed" in message:
            raise WorkerDied(f"worker {self._module} does not start: {message['failed']}")

    async def ask(
        self, request: Mapping[str, Any], cpu_seconds: float, slow: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """Send one request and wait for its reply; after any error but a reply the worker must be killed.

        The deadline counts the worker's CPU time, so a loaded machine does not turn right answers wrong; the wall clock
        only catches a worker that sleeps.

        Args:
            request: JSON-compatible.
            cpu_seconds: the deadline.
            slow: called once, when a share of that time is gone.

        Raises:
            DeadlineExceeded: the worker used `cpu_seconds` of CPU, or 3 times that + 2 s of wall time.
            WorkerDied: the worker ended, or answered something else.

        """
        self._requests += 1
        exchange = asyncio.ensure_future(self._exchange({**request, "id": self._requests}))
        try:
            await self._watch(exchange, cpu_seconds, slow)
            reply = exchange.result()
        finally:
            exchange.cancel()
        if reply.get("id") != self._requests:
            raise WorkerDied(f"worker {self._module} answered out of step; it is replaced")
        return reply

    def kill(self) -> None:
        """Send SIGKILL; `reap` then waits for the end."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def reap(self) -> None:
        """Wait until the killed process is gone and its pipes are closed.

        Raises:
            DeadlineExceeded: the kernel did not end it.

        """
        stdout = self._process.stdout
        assert stdout is not None
        try:
            async with asyncio.timeout(REAP_SECONDS):
                while await stdout.read(MAX_REPLY_BYTES):  # asyncio closes the transport only at the end of the pipe
                    pass
                await self._process.wait()
        except TimeoutError:
            raise DeadlineExceeded(f"killed worker {self._module} (pid {self.pid}) to end", REAP_SECONDS) from None

    async def _watch(
        self, exchange: "asyncio.Future[dict[str, Any]]", cpu_seconds: float, slow: Callable[[], None]
    ) -> None:
        wall_seconds = 3 * cpu_seconds + 2
        wall_left, looked = wall_seconds, time.monotonic()
        cpu_deadline, told = self._cpu_seconds() + cpu_seconds, False
        while True:
            done, _ = await asyncio.wait({exchange}, timeout=POLL_SECONDS)
            if done:
                return
            cpu_left = cpu_deadline - self._cpu_seconds()
            if not told and cpu_left < cpu_seconds * (1 - SLOW_SHARE):
                told = True
                slow()
            if cpu_left <= 0:
                raise DeadlineExceeded(f"worker {self._module} to answer (CPU time)", cpu_seconds)
            # While this process was too busy to look, the answer may have come: such time is not the worker's.
            waited, looked = time.monotonic() - looked, time.monotonic()
            wall_left -= min(waited, LONGEST_LOOK_SECONDS)
            if wall_left <= 0:
                raise DeadlineExceeded(f"worker {self._module} to answer (wall time)", wall_seconds)

    async def _exchange(self, request: Mapping[str, Any]) -> dict[str, Any]:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write((json.dumps(request) + "\n").encode())
            await stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerDied(f"worker {self._module} ended before it could be asked") from error
        return await self._read()

    async def _read(self) -> dict[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            line = await stdout.readline()
            message = json.loads(line) if line else None
        except ValueError as error:  # longer than the limit, or not JSON
            raise WorkerDied(f"worker {self._module} broke its protocol: {error}") from error
        if not isinstance(message, dict):
            raise WorkerDied(f"worker {self._module} ended before it answered")
        return message

    def _cpu_seconds(self) -> float:
        """User and system time of the process and its threads, proc(5); a process that is gone used no more."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return 0.0
        fields = stat.rpartition(")")[2].split()  # the name before it may hold spaces
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def _environment() -> dict[str, str]:
    """The search path for our own package; one BLAS thread, or numpy's stacks alone overrun the memory limit."""
    root = Path(next(iter(services.__path__))).parent
    return {"PYTHONPATH": str(root), "LC_ALL": "C.UTF-8", **ONE_THREAD}
