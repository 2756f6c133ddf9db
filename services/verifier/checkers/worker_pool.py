"""A fixed number of worker processes; requests queue for a free one, and a worker that fails is replaced.

A request that takes long may end its worker at the deadline; the replacement starts meanwhile, to be warm when needed.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pacs.errors import BadInput, DeadlineExceeded, ServiceFailed
from services.verifier.checkers.worker_process import WorkerDied, WorkerProcess

__all__ = ["WorkerPool"]

log = logging.getLogger(__name__)

QUEUE_SECONDS = 600.0
START_SECONDS = 60.0


class WorkerPool:
    """Runs requests in worker processes that are started when first needed.

    Args:
        module: what a worker runs, as in `python -m module`; it speaks the protocol of `worker_loop`.
        size: worker processes at most.
        cpu_seconds: CPU time a request may use; the wall cap is 3 times that + 2 s.
        walls: whether workers wall themselves in; see `worker_lockdown`.

    """

    def __init__(self, module: str, size: int, cpu_seconds: float = 2.0, *, walls: bool = True) -> None:
        if size < 1 or cpu_seconds <= 0:
            raise BadInput(
                f"a pool needs at least 1 worker and more than 0 CPU seconds, got size={size} and "
                f"cpu_seconds={cpu_seconds:g}; raise them in the verifier's settings"
            )
        self._module = module
        self._size = size
        self._cpu_seconds = cpu_seconds
        self._free = asyncio.Semaphore(size)
        self._idle: list[WorkerProcess] = []
        self._walls = walls
        self._spares: list[asyncio.Task[WorkerProcess]] = []  # at most one a busy worker
        self._workers: set[WorkerProcess] = set()
        self._reaping: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that are running."""
        return tuple(worker.pid for worker in self._workers)

    async def start(self) -> None:
        """Start one worker now, so that a machine on which none starts is noticed before the first request.

        Raises:
            ServiceFailed: it does not start; its own last words went to this process's stderr.

        """
        self._refuse_if_closed()
        await self._take_slot()
        try:
            self._idle.append(await self._worker(fresh=False))
        finally:
            self._free.release()

    async def request(self, body: Mapping[str, Any], cpu_seconds: float | None = None) -> dict[str, Any]:
        """Ask a free worker; a worker that dies by itself is replaced and the request tried once more.

        Args:
            body: JSON-compatible; the key `id` is the pool's own.
            cpu_seconds: this request's deadline, where it differs from the pool's.

        Raises:
            DeadlineExceeded: no worker became free, or the worker was killed at its deadline.
            ServiceFailed: two workers in a row died or did not start, or the pool is closed.

        """
        self._refuse_if_closed()
        await self._take_slot()
        try:
            try:
                return await self._ask_once(body, cpu_seconds, fresh=False)
            except WorkerDied as error:
                log.warning("%s; asking a fresh one", error)
                return await self._ask_once(body, cpu_seconds, fresh=True)
        finally:
            self._free.release()

    async def outcome(self, body: Mapping[str, Any], cpu_seconds: float | None = None) -> dict[str, Any]:
        """Do as `request` does, with failures of the infrastructure as a reply of status timeout or error."""
        try:
            return await self.request(body, cpu_seconds)
        except DeadlineExceeded as error:
            log.info("%s; the worker is replaced and the sample not judged", error)
            return {"status": "timeout", "detail": str(error)}
        except ServiceFailed as error:
            log.warning("%s; the sample is not judged", error)
            return {"status": "error", "detail": str(error)}

    async def close(self) -> None:
        """Kill every worker, wait until all are gone, and refuse later requests."""
        if self._closed:
            return
        self._closed = True
        for worker in tuple(self._workers):
            worker.kill()
        for _ in range(self._size):  # requests in flight end at once, as their workers are dead
            await self._take_slot()
        await asyncio.gather(*self._spares, return_exceptions=True)
        for worker in tuple(self._workers):
            self._discard(worker)
        await asyncio.gather(*self._reaping)

    async def _take_slot(self) -> None:
        try:
            async with asyncio.timeout(QUEUE_SECONDS):
                await self._free.acquire()
        except TimeoutError:
            raise DeadlineExceeded(f"a free worker {self._module}", QUEUE_SECONDS) from None

    async def _ask_once(self, body: Mapping[str, Any], cpu_seconds: float | None, *, fresh: bool) -> dict[str, Any]:
        worker = await self._worker(fresh)
        try:
            reply = await worker.ask(body, self._cpu_seconds if cpu_seconds is None else cpu_seconds, self._begin_spare)
        except BaseException:  # whatever ended the wait, a cancellation too: the worker is out of step
            self._discard(worker)
            raise
        self._idle.append(worker)
        return reply

    async def _worker(self, fresh: bool) -> WorkerProcess:
        self._refuse_if_closed()
        while self._idle and not fresh:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            self._discard(worker)
        while self._spares:
            spare = self._spares.pop(0)
            try:
                worker = await asyncio.shield(spare)
            except ServiceFailed as error:
                log.warning("a spare worker did not start: %s", error)
                continue
            except asyncio.CancelledError:
                self._spares.append(spare)
                raise
            if worker.alive:
                return worker
            self._discard(worker)
        return await self._new_worker()

    def _begin_spare(self) -> None:
        if len(self._spares) < self._size and not self._closed:
            self._spares.append(asyncio.create_task(self._new_worker()))

    async def _new_worker(self) -> WorkerProcess:
        worker = await WorkerProcess.spawn(self._module, walls=self._walls)
        self._workers.add(worker)
        try:
            self._refuse_if_closed()
            await worker.wait_ready(START_SECONDS)
        except DeadlineExceeded as error:
            self._discard(worker)
            raise ServiceFailed(str(error)) from error
        except BaseException:
            self._discard(worker)
            raise
        return worker

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ServiceFailed(f"the pool of {self._module} is closed and answers nothing more")

    def _discard(self, worker: WorkerProcess) -> None:
        """Kill now, without waiting; reaping goes on in the background and `close` waits for it."""
        worker.kill()
        self._workers.discard(worker)
        task = asyncio.get_running_loop().create_task(worker.reap())
        self._reaping.add(task)
        task.add_done_callback(self._reaping.discard)
