"""The stream a rollout replica or the learner keeps open to control: heartbeats and results up, commands down."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import grpc

from pacs.pb import control_pb2 as pb
from pacs.pb.control_pb2_grpc import ControlStub
from pacs.runtime.grpc_auth import bearer_metadata

__all__ = ["AgentClient"]

RECONNECT_SECONDS = 1.0

logger = logging.getLogger(__name__)

CommandHandler = Callable[[pb.Command], Awaitable[pb.CommandResult]]


@dataclass
class AgentClient:
    """One participant's side of `Attach`; reconnects for as long as it runs.

    Args:
        address: control's host:port.
        token: bearer token.
        agent_id: stable across restarts.
        role: rollout or learner.
        handle: carries out one command; its exception's text becomes the result's error. Commands run one at a time,
            heartbeats go on meanwhile.
        waiting_for: what the participant waits for, empty while it works.
        gauges: figures for control's view.
        policy_version: the verified version this process holds; 0 while it is new.

    """

    address: str
    token: str
    agent_id: str
    role: str
    heartbeat_seconds: float
    handle: CommandHandler
    waiting_for: Callable[[], str] = lambda: ""
    gauges: Callable[[], Mapping[str, float]] = dict
    policy_version: Callable[[], int] = lambda: 0
    _outbox: "asyncio.Queue[pb.AgentEvent]" = field(default_factory=asyncio.Queue)

    def send(self, event: pb.AgentEvent) -> None:
        """Queue an event; it waits for the connection if there is none."""
        self._outbox.put_nowait(event)

    async def run(self, stop: asyncio.Event) -> None:
        """Stay attached until told to stop."""
        stopped = asyncio.ensure_future(stop.wait())
        try:
            while not stop.is_set():
                await self._attach_until(stopped)
                await asyncio.wait({stopped}, timeout=RECONNECT_SECONDS)
        finally:
            stopped.cancel()

    async def _attach_until(self, stopped: "asyncio.Future[Any]") -> None:
        """Stay attached until the stream ends or `stopped` is done."""
        attached = asyncio.ensure_future(self._attach())
        waits: set[asyncio.Future[Any]] = {attached, stopped}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if attached.done():
                await attached
        except grpc.aio.AioRpcError as error:
            logger.warning("%s: control at %s is away (%s); trying again", self.agent_id, self.address, error.details())
        finally:
            attached.cancel()
            await asyncio.gather(attached, return_exceptions=True)

    async def _attach(self) -> None:
        async with grpc.aio.insecure_channel(self.address) as channel:
            call = ControlStub(channel).Attach(
                self._events(), metadata=bearer_metadata(self.token), wait_for_ready=True
            )
            async for command in call:
                self.send(pb.AgentEvent(result=await self._carry_out(command)))

    async def _carry_out(self, command: pb.Command) -> pb.CommandResult:
        name = command.WhichOneof("command")
        logger.info("%s: %s", self.agent_id, name)
        try:
            result = await self.handle(command)
        except Exception as error:  # whatever it is, its text belongs to control
            logger.exception("%s: %s failed", self.agent_id, name)
            result = pb.CommandResult(error=f"{type(error).__name__}: {error}")
        result.command_id = command.command_id
        return result

    async def _events(self) -> AsyncIterator[pb.AgentEvent]:
        version = self.policy_version()
        hello = pb.Hello(agent_id=self.agent_id, role=self.role, fresh=version == 0, policy_version=version)
        yield pb.AgentEvent(hello=hello)
        while True:
            try:
                async with asyncio.timeout(self.heartbeat_seconds):
                    event = await self._outbox.get()
            except TimeoutError:
                event = pb.AgentEvent(
                    heartbeat=pb.Heartbeat(waiting_for=self.waiting_for(), gauges=dict(self.gauges()))
                )
            yield event
