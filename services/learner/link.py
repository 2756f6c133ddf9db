"""The learner's line to Redis and control: a thread with an event loop, and a queue of events for the training one.

The training thread waits on that queue alone: a group has come, control wants something, a publication has ended, stop.
"""

import asyncio
import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from redis.exceptions import RedisError

from pacs.errors import DeadlineExceeded, ServiceFailed
from pacs.pb import control_pb2 as pb
from pacs.pb.control_pb2_grpc import ControlStub
from pacs.runtime.agent import AgentClient
from pacs.runtime.grpc_auth import bearer_metadata
from pacs.runtime.tasks import end_tasks
from pacs.transport.interface import Delivery, Stream
from pacs.transport.redis_client import connect
from pacs.transport.redis_streams import RedisStreams
from services.learner.settings import Settings

__all__ = ["CommandCame", "Event", "GroupCame", "LearnerLink", "LinkBroke", "PublicationEnded", "RankLost", "StopAsked"]

READ_WAIT_SECONDS = 1.0
DRAIN_SECONDS = 0.3
CALL_SECONDS = 60.0  # for one call to Redis from the training thread

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class GroupCame:
    """A labelled group is there."""

    delivery: Delivery


@dataclass(frozen=True)
class CommandCame:
    """Control wants something done between two batches; `reply` takes the result."""

    command: pb.Command
    reply: "Future[pb.CommandResult]"


@dataclass(frozen=True)
class PublicationEnded:
    """The Publish call has returned."""

    reply: pb.PublishReply | None
    error: str


@dataclass(frozen=True)
class StopAsked:
    """Checkpoint and end."""

    reason: str


@dataclass(frozen=True)
class LinkBroke:
    """The thread ended with an error."""

    error: BaseException


@dataclass(frozen=True)
class RankLost:
    """Another rank of the learner ended."""

    error: ServiceFailed


Event = GroupCame | CommandCame | PublicationEnded | StopAsked | LinkBroke | RankLost


class LearnerLink:
    """See the module.

    Args:
        settings: of the learner.
        policy_version: the version this process has published last; 0 while it is new.

    """

    def __init__(self, settings: Settings, policy_version: Callable[[], int]) -> None:
        self._settings = settings
        self.events: queue.Queue[Event] = queue.Queue()
        self.waiting_for = "the model to load"
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._client = connect(settings.redis_url.get_secret_value())
        self._streams = RedisStreams(self._client, settings.config.run.name)
        self._room = asyncio.Semaphore(settings.config.capacity)
        self._agent = AgentClient(
            settings.control_target,
            settings.bearer_token,
            settings.agent_id,
            "learner",
            settings.config.control.heartbeat_seconds,
            self._on_command,
            waiting_for=lambda: self.waiting_for,
            policy_version=policy_version,
        )
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)

    def start(self) -> None:
        """Attach to control and begin to take groups."""
        self._thread.start()

    def close(self) -> None:
        """Let go of both ends; groups not acknowledged stay ours in Redis."""
        if self._thread.ident is None:  # something failed before the start
            self._loop.close()
            return
        with contextlib.suppress(ServiceFailed):  # it is down already
            self._soon(self._stop.set)
        if self._thread.is_alive():  # it may never have been started
            self._thread.join(timeout=10)

    def next_event(self, timeout_seconds: float) -> Event | None:
        """The next event, or None in time."""
        try:
            return self.events.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def ask_to_stop(self, reason: str) -> None:
        """Put a stop behind what is queued; may be called from a signal handler."""
        self.events.put(StopAsked(reason))

    def rank_lost(self, error: ServiceFailed) -> None:
        """Pass on that another rank has ended; may be called from any thread."""
        self.events.put(RankLost(error))

    def acknowledge_trained(self, entry_ids: list[str]) -> int:
        """Count groups as trained: their gradient is durable."""
        return self._call(self._streams.finish_trained(entry_ids))

    def dead_letter(self, delivery: Delivery, reason: str) -> None:
        """Set a group aside that cannot be read."""
        self._call(self._streams.dead_letter(Stream.LABELED, delivery, reason))

    def admit_again(self, entry_id: str, prompt: bytes, reason: str) -> None:
        """Drop a group and admit its prompt again, in one step."""
        self._call(self._streams.admit_again(Stream.LABELED, entry_id, prompt, reason))

    def taken(self, groups: int) -> None:
        """Make room: the training thread has taken groups off the queue for good."""
        for _ in range(groups):
            self._soon(self._room.release)

    def publish(self, request: pb.PublishRequest, deadline_seconds: float) -> None:
        """Begin a publication; `PublicationEnded` tells how it ended."""
        self._start(self._publish(request, deadline_seconds))

    def report_step(self, step: int, figures_json: str) -> None:
        """Send a batch's figures to control."""
        event = pb.AgentEvent(step=pb.StepReport(step=step, figures_json=figures_json))
        self._soon(self._agent.send, event)

    def report_finished(self, step: int) -> None:
        """Tell control that the last batch is trained, saved and published."""
        self._soon(self._agent.send, pb.AgentEvent(finished=pb.Finished(step=step)))

    def _soon(self, action: Callable[..., object], *arguments: object) -> None:
        """Do something on the link's thread.

        Raises:
            ServiceFailed: the thread has ended; its own error is in the log.

        """
        try:
            self._loop.call_soon_threadsafe(action, *arguments)
        except RuntimeError as error:
            raise ServiceFailed(f"the line to Redis and control is down: {error}") from error

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._start(work).result(CALL_SECONDS)
        except TimeoutError as error:
            raise DeadlineExceeded("Redis to answer the learner", CALL_SECONDS) from error
        except RedisError as error:
            raise ServiceFailed(f"Redis did not do what the learner asked: {error}") from error

    def _start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        if self._loop.is_closed():
            work.close()
            raise ServiceFailed("the line to Redis and control is down")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self.events.put(LinkBroke(error))
            logger.exception("the line to Redis and control broke")
        finally:
            # gRPC's poller still hands over completions of calls that were just cancelled.
            self._loop.run_until_complete(asyncio.sleep(DRAIN_SECONDS))
            self._loop.close()

    async def _serve(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                attached = group.create_task(self._agent.run(self._stop))
                reading = group.create_task(self._read())
                await self._stop.wait()
                await end_tasks([reading, attached])
        finally:
            await self._client.aclose()

    async def _read(self) -> None:
        """Read ahead, as far as the pipeline's capacity; what an earlier life held comes first."""
        await self._streams.prepare()
        consumer = self._settings.agent_id
        deliveries = await self._streams.reclaim(Stream.LABELED, consumer)
        while True:
            for delivery in deliveries:
                await self._room.acquire()
                self.events.put(GroupCame(delivery))
            deliveries = await self._streams.read(Stream.LABELED, consumer, 16, READ_WAIT_SECONDS)

    async def _on_command(self, command: pb.Command) -> pb.CommandResult:
        if command.WhichOneof("command") == "stop":
            self.ask_to_stop(command.stop.reason)
            return pb.CommandResult()
        reply: Future[pb.CommandResult] = Future()
        self.events.put(CommandCame(command, reply))
        return await asyncio.wrap_future(reply)

    async def _publish(self, request: pb.PublishRequest, deadline_seconds: float) -> None:
        try:
            async with grpc.aio.insecure_channel(self._settings.control_target) as channel:
                reply = await ControlStub(channel).Publish(
                    request,
                    metadata=bearer_metadata(self._settings.bearer_token),
                    wait_for_ready=True,
                    timeout=deadline_seconds,
                )
            self.events.put(PublicationEnded(reply, ""))
        except grpc.aio.AioRpcError as error:
            self.events.put(PublicationEnded(None, f"{error.code().name}: {error.details()}"))
