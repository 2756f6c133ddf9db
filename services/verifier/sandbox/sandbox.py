"""The sandbox: runs untrusted programs, a fixed number at a time, and owns up where it could not."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from pacs.errors import BadInput, ServiceFailed
from pacs.runtime.config import SandboxSection
from services.verifier.sandbox.live_run import LiveRun
from services.verifier.sandbox.runs import RunLimits, RunLost, RunResult
from services.verifier.sandbox.self_test import self_test
from services.verifier.sandbox.zygote_link import ZygoteLink

__all__ = ["Sandbox", "Slot"]

log = logging.getLogger(__name__)

T = TypeVar("T")

TRIES = 3
RUNS_A_SLOT = 2  # assert tests have a second one beside the program
TALK_SECONDS = 10.0  # beyond a run's wall time: for its start and its end
QUEUE_SECONDS = 600.0
REMEDY = (
    "install bubblewrap (apt-get install bubblewrap) and allow user namespaces or run as root for mode strong; mode "
    "landlock needs Linux 5.13 with Landlock, and as root the capabilities SETUID, SETGID and KILL. "
    "verifier.sandbox.isolation: weak does without, for programs you would run on this machine anyway"
)


class Slot:
    """The right to have a program run, and one more beside it.

    Args:
        link: the zygote of this try.
        number: which slot; no two are in use at a time.

    """

    def __init__(self, link: ZygoteLink, number: int) -> None:
        self._link = link
        self._number = number
        self._runs: list[LiveRun] = []

    def begin(self, program: str, limits: RunLimits, entry: str = "program", stdin: bytes = b"") -> LiveRun:
        """Start a run; it ends with the slot at the latest. Arguments as for `ZygoteLink.begin`."""
        assert len(self._runs) < RUNS_A_SLOT
        user = self._number * RUNS_A_SLOT + len(self._runs)
        run = self._link.begin(program, stdin, entry, limits, user)
        self._runs.append(run)
        return run

    async def clear(self) -> None:
        """End what still runs, so that the next user of the slot is alone."""
        for run in self._runs:
            try:
                await run.result(kill=True)
            except RunLost as error:
                if not run.ended.done():
                    self._link.abandon(error)
            finally:
                run.close()


class Sandbox:
    """Runs programs behind the wall; safe to use many times at once, starts when first used.

    Args:
        settings: mode, limits and number of slots.
        preload: modules of its packages that every run inherits.

    """

    def __init__(self, settings: SandboxSection, preload: tuple[str, ...] = ()) -> None:
        self._settings = settings
        self._preload = preload
        self.limits = RunLimits.of(settings)
        self._numbers = list(range(settings.slots or os.cpu_count() or 1))
        self._free = asyncio.Semaphore(len(self._numbers))
        self._starting = asyncio.Lock()
        self._link: ZygoteLink | None = None
        self._mode = ""
        self._refusal: BadInput | None = None
        self._closed = False

    @property
    def isolation(self) -> str:
        """The mode in use: strong, landlock or weak; empty before the start."""
        return self._mode

    @property
    def pid(self) -> int | None:
        """Process id of the zygote, or of the bubblewrap around it."""
        return self._link.pid if self._link is not None else None

    async def start(self) -> None:
        """Choose the mode, start the zygote, and prove with the self-test that the wall stands.

        Raises:
            BadInput: no mode that the settings allow works here, or a probe of the self-test got through.

        """
        async with self._starting:
            if self._refusal is not None:
                raise self._refusal
            if not self._mode:
                try:
                    await self._choose_mode()
                except BadInput as error:
                    self._refusal = error
                    raise

    async def run(self, program: str, stdin: bytes = b"", limits: RunLimits | None = None) -> RunResult:
        """Run a program to its end.

        Args:
            program: Python source.
            stdin: all there will be.
            limits: where they differ from the configured ones.

        Raises:
            BadInput: the sandbox does not start here.
            ServiceFailed: three tries failed for reasons of the sandbox's own.

        """
        chosen = limits or self.limits
        return await self.hold(lambda slot: slot.begin(program, chosen, stdin=stdin).result(), chosen)

    async def hold(self, body: Callable[[Slot], Awaitable[T]], limits: RunLimits | None = None) -> T:
        """Do something with a slot; if the sandbox fails meanwhile it is mended and the body called again.

        Args:
            body: starts runs in the slot and returns what it made of them.
            limits: of the longest run the body starts.

        Raises:
            BadInput: the sandbox does not start here.
            ServiceFailed: three tries failed for reasons of the sandbox's own.

        """
        await self.start()
        seconds = (limits or self.limits).wall_seconds + TALK_SECONDS
        async with self._number() as number:
            for attempt in range(1, TRIES + 1):
                try:
                    return await self._attempt(body, number, seconds)
                except RunLost as error:
                    failure = error
                    log.warning("sandbox run failed, try %d of %d: %s", attempt, TRIES, error)
        raise ServiceFailed(f"the sandbox failed {TRIES} times in a row, the last time: {failure}")

    async def close(self) -> None:
        """End the zygote and every run; later calls fail."""
        self._closed = True
        async with self._starting:
            if self._link is not None:
                await self._link.close()
                self._link = None

    async def _attempt(self, body: Callable[[Slot], Awaitable[T]], number: int, seconds: float) -> T:
        slot = Slot(await self._living_link(), number)
        try:
            async with asyncio.timeout(seconds):
                return await body(slot)
        except TimeoutError:
            raise RunLost(f"waited {seconds:g} s for a conversation with a run to end, in vain") from None
        finally:
            await slot.clear()

    @contextlib.asynccontextmanager
    async def _number(self) -> AsyncIterator[int]:
        try:
            async with asyncio.timeout(QUEUE_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise ServiceFailed(f"waited {QUEUE_SECONDS:g} s for a free slot of the sandbox, in vain") from None
        number = self._numbers.pop()
        try:
            yield number
        finally:
            self._numbers.append(number)
            self._free.release()

    async def _living_link(self) -> ZygoteLink:
        async with self._starting:
            if self._closed:
                raise ServiceFailed("the sandbox is closed and runs nothing more")
            if self._link is not None and self._link.alive:
                return self._link
            if self._link is not None:
                await self._link.close(kill=True)  # it may be what does not answer
                self._link = None
            self._link = await self._new_link(self._mode)
            return self._link

    def _new_link(self, mode: str) -> Awaitable[ZygoteLink]:
        return ZygoteLink.start(mode, self._settings.first_user, tuple(self._settings.packages), self._preload)

    async def _choose_mode(self) -> None:
        wanted = self._settings.isolation
        modes = ("strong", "landlock") if wanted == "auto" else (wanted,)
        failures = []
        for mode in modes:
            try:
                link = await self._new_link(mode)
            except RunLost as error:
                failures.append(f"{mode}: {error}")
                continue
            await self._prove(link)
            for failure in failures:
                log.warning("sandbox mode %s is not available here, %s is used", failure, mode)
            self._link, self._mode = link, mode
            self._announce()
            return
        raise BadInput(
            f"programs need a sandbox, verifier.sandbox.isolation={wanted} starts none: {'; '.join(failures)}. {REMEDY}"
        )

    async def _prove(self, link: ZygoteLink) -> None:
        try:
            await self_test(link, self.limits)
        except BaseException as error:
            await link.close()
            if isinstance(error, RunLost):
                raise BadInput(
                    f"the sandbox's self-test did not run in mode {link.isolation}: {error}. {REMEDY}"
                ) from error
            if isinstance(error, BadInput):
                raise BadInput(f"{error} {REMEDY}") from None
            raise

    def _announce(self) -> None:
        if self._mode == "weak":
            log.critical(
                "SANDBOX ISOLATION IS WEAK: programs written by the model run with this user's rights, limited in time "
                "and memory only; they can read files and open connections. Set verifier.sandbox.isolation: auto"
            )
        else:
            log.info("the sandbox is up in mode %s; every probe of its self-test was stopped", self._mode)
