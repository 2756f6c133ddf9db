"""The judge's side of the zygote: start it, hand it runs, hear of their ends, end it."""

import array
import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from services.verifier.sandbox.command import make_launch
from services.verifier.sandbox.live_run import LiveRun, sealed_file
from services.verifier.sandbox.runs import RunLimits, RunLost

__all__ = ["ZygoteLink"]

MAX_MESSAGE_BYTES = 4096
START_SECONDS = 30.0
END_SECONDS = 10.0


class ZygoteLink:
    """A running zygote."""

    def __init__(self, process: subprocess.Popen[bytes], judge: socket.socket, isolation: str, errors: int) -> None:
        self.isolation = isolation
        self._process = process
        self._judge = judge
        self._errors = errors
        self._numbers = itertools.count(1)
        self._runs: dict[int, LiveRun] = {}
        self._lost: RunLost | None = None
        self._closed = False

    @classmethod
    async def start(
        cls, isolation: str, first_user: int, packages: tuple[Path, ...] = (), preload: tuple[str, ...] = ()
    ) -> "ZygoteLink":
        """Start a zygote and wait until it is ready; arguments as for `make_launch`.

        Raises:
            RunLost: it does not start in this mode on this machine; the text has its own last words.

        """
        judge, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        errors = os.memfd_create("zygote-stderr")
        try:
            with theirs:
                launch = make_launch(isolation, theirs.fileno(), first_user, packages, preload)
                process = subprocess.Popen(  # noqa: ASYNC220  # returns once exec has happened
                    launch.command,
                    env=launch.environment,
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=(theirs.fileno(),),
                )
        except BaseException:
            judge.close()
            os.close(errors)
            raise
        link = cls(process, judge, isolation, errors)
        try:
            await link._wait_ready()
        except BaseException:
            await link.close()
            raise
        return link

    @property
    def alive(self) -> bool:
        """Whether runs may be handed over."""
        return self._lost is None

    @property
    def pid(self) -> int:
        """Process id of what was started: bubblewrap's in mode strong, else the zygote's own."""
        return self._process.pid

    def begin(self, program: str, stdin: bytes, entry: str, limits: RunLimits, user: int) -> LiveRun:
        """Hand a run over; whoever gets it closes it.

        Args:
            program: Python source.
            stdin: all there will be.
            entry: program, calls or asserts: what is done with the program.
            limits: what it may use.
            user: number of its user; no two runs at a time share one.

        Raises:
            RunLost: the zygote is gone.

        """
        if self._lost is not None:
            raise self._lost
        number = next(self._numbers)
        run = LiveRun(limits, self.isolation, entry != "program", lambda: self._send({"kill": number}))
        self._runs[number] = run
        run.ended.add_done_callback(lambda _: self._runs.pop(number, None))
        request = {"run": number, "entry": entry, "user": user, "message_bytes": limits.output_bytes, **asdict(limits)}
        files = [sealed_file(program.encode("utf-8", "replace")), sealed_file(stdin)]
        try:
            self._send(request, [*files, *run.for_child])
        except BaseException:
            run.ended.cancel()
            run.close()
            raise
        finally:
            for descriptor in files:
                os.close(descriptor)
        run.handed_over()
        return run

    def abandon(self, error: RunLost) -> None:
        """Count the zygote as lost: nothing is handed to it any more, and every run in it fails."""
        if self._lost is not None:
            return
        self._lost = error
        asyncio.get_running_loop().remove_reader(self._judge.fileno())
        self._judge.close()
        for run in tuple(self._runs.values()):
            if not run.ended.done():
                run.ended.set_exception(error)
                run.ended.exception()  # it may be waited for by nobody

    async def close(self, *, kill: bool = False) -> None:
        """End the zygote, and its children with it; may be called again.

        Args:
            kill: do not wait for it to notice that the judge has left.

        Raises:
            RunLost: the kernel did not end it.

        """
        self.abandon(RunLost("the sandbox is closed"))
        if self._closed:
            return
        self._closed = True
        if kill or not await self._ended(END_SECONDS):
            self._process.kill()
            if not await self._ended(END_SECONDS):
                raise RunLost(f"killed zygote (pid {self.pid}) did not end in {END_SECONDS:g} s")
        os.close(self._errors)

    async def _wait_ready(self) -> None:
        self._judge.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(START_SECONDS):
                data = await loop.sock_recv(self._judge, MAX_MESSAGE_BYTES)
        except TimeoutError:
            raise RunLost(f"waited {START_SECONDS:g} s for the zygote to start, in vain") from None
        if not data:
            raise RunLost(f"the zygote did not start: {self._last_words()}")
        loop.add_reader(self._judge.fileno(), self._receive)

    def _send(self, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
        if self._lost is not None:
            return  # nobody is left to be asked
        rights = array.array("i", descriptors or [])
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
        try:
            self._judge.sendmsg([json.dumps(message).encode()], ancillary)
        except OSError as error:  # gone, or it has not read hundreds of messages
            lost = RunLost(f"the zygote takes no requests: {error}; {self._last_words()}")
            self.abandon(lost)
            raise lost from error

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._lost is None:
                try:
                    data = self._judge.recv(MAX_MESSAGE_BYTES)
                except ConnectionError:
                    data = b""
                if not data:
                    self.abandon(RunLost(f"the zygote ended: {self._last_words()}"))
                    return
                report = json.loads(data)
                run = self._runs.get(report["run"])
                if run is not None and not run.ended.done():
                    run.ended.set_result(report)

    def _last_words(self) -> str:
        words = os.pread(self._errors, MAX_MESSAGE_BYTES, max(0, os.fstat(self._errors).st_size - MAX_MESSAGE_BYTES))
        lines = words.decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    async def _ended(self, seconds: float) -> bool:
        if self._process.poll() is not None:
            return True
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        descriptor = os.pidfd_open(self._process.pid)
        loop.add_reader(descriptor, lambda: None if ended.done() else ended.set_result(None))
        try:
            async with asyncio.timeout(seconds):
                await ended
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        self._process.wait()
        return True
