"""Control's gRPC side: Attach for agents, Publish for the learner."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from pacs.errors import PacsError
from pacs.pb import control_pb2 as pb
from pacs.pb.control_pb2_grpc import ControlServicer, add_ControlServicer_to_server
from pacs.runtime.grpc_auth import BearerInterceptor
from pacs.runtime.tasks import end_tasks
from services.control.agents import Agent, AgentRegistry
from services.control.handler import ControlHandler

__all__ = ["serve_grpc"]

logger = logging.getLogger(__name__)


async def serve_grpc(handler: ControlHandler, agents: AgentRegistry, token: str, address: str) -> grpc.aio.Server:
    """Start the server; the caller stops it."""
    server = grpc.aio.server(interceptors=[BearerInterceptor(token)])
    add_ControlServicer_to_server(_Service(handler, agents), server)
    server.add_insecure_port(address)
    await server.start()
    return server


class _Service(ControlServicer):
    def __init__(self, handler: ControlHandler, agents: AgentRegistry) -> None:
        self._handler = handler
        self._agents = agents
        self._tasks: set[asyncio.Task[None]] = set()

    async def Attach(self, request_iterator: AsyncIterator[pb.AgentEvent], context: Any) -> AsyncIterator[pb.Command]:
        """See proto/pacs/pb/control.proto."""
        first = await anext(request_iterator)
        if first.WhichOneof("event") != "hello":
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the first event of an agent must be hello")
        agent = await self._agents.attach(first.hello.agent_id, first.hello.role)
        logger.info("%s attached", agent.agent_id)
        tasks = [asyncio.create_task(self._listen(agent, request_iterator)), asyncio.create_task(agent.ended.wait())]
        next_command: asyncio.Task[pb.Command] | None = None
        try:
            if agent.role == "learner":
                await self._handler.learner_attached(agent, first.hello)
            else:
                self._in_background(self._handler.replica_attached(agent, first.hello))
            while not any(task.done() for task in tasks):
                next_command = asyncio.create_task(agent.commands.get())
                await asyncio.wait({*tasks, next_command}, return_when=asyncio.FIRST_COMPLETED)
                if not next_command.done():
                    break
                yield next_command.result()
        finally:
            await end_tasks([*tasks, *([next_command] if next_command else [])])
            self._agents.detach(agent)
            logger.info("%s detached", agent.agent_id)

    async def Publish(self, request: pb.PublishRequest, context: Any) -> pb.PublishReply:
        """See proto/pacs/pb/control.proto."""
        try:
            done = await self._handler.publish(request)
        except PacsError as error:
            await context.abort(grpc.StatusCode.ABORTED, str(error))
            raise
        return pb.PublishReply(
            policy_version=done.policy_version,
            max_logprob_gap=done.max_logprob_gap,
            phase_seconds=done.phase_seconds,
            version_steps=done.version_steps,
        )

    async def _listen(self, agent: Agent, events: AsyncIterator[pb.AgentEvent]) -> None:
        async for event in events:
            agent.last_heard = time.monotonic()
            match event.WhichOneof("event"):
                case "heartbeat":
                    agent.waiting_for, agent.gauges = event.heartbeat.waiting_for, dict(event.heartbeat.gauges)
                case "result":
                    agent.answer(event.result)
                case "step":
                    await self._handler.step_done(event.step)
                case "finished":
                    self._in_background(self._handler.finish())

    def _in_background(self, work: Any) -> None:
        """Run what must not hold up an agent's stream."""

        async def guarded() -> None:
            try:
                await work
            except PacsError as error:
                self._handler.failure = str(error)
                logger.error("%s", error)

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
