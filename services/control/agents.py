"""Who is attached, and how to ask one of them to do something and wait for its answer."""

import asyncio
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from pacs.errors import DeadlineExceeded, ServiceFailed
from pacs.pb import control_pb2 as pb

__all__ = ["Agent", "AgentRegistry"]


@dataclass
class Agent:
    """One attached participant.

    Args:
        ready_version: policy version it is verified to hold; 0: none, it takes no prompts.
        fenced_error: why its last publication failed; empty if it did not.
        ended: set when the agent no longer counts as attached; an agent that lives attaches again.

    Commands are numbered from the time of attachment, so that an answer to a command of an earlier attachment, or of an
    earlier control, which an agent sends over its next stream, is not taken for one of ours.

    """

    agent_id: str
    role: str
    commands: "asyncio.Queue[pb.Command]" = field(default_factory=asyncio.Queue)
    last_heard: float = field(default_factory=time.monotonic)
    waiting_for: str = ""
    gauges: Mapping[str, float] = field(default_factory=dict)
    ready_version: int = 0
    fenced_error: str = ""
    _ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(time.time_ns()))
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    _answers: "dict[int, asyncio.Future[pb.CommandResult]]" = field(default_factory=dict)

    async def request(self, command: pb.Command, timeout_seconds: float) -> pb.CommandResult:
        """Send a command and wait for its result.

        Raises:
            ServiceFailed: the agent reports an error (its own text) or goes away.
            DeadlineExceeded: no result in time.

        """
        command.command_id = next(self._ids)
        answer: asyncio.Future[pb.CommandResult] = asyncio.get_running_loop().create_future()
        self._answers[command.command_id] = answer
        self.commands.put_nowait(command)
        try:
            async with asyncio.timeout(timeout_seconds):
                result = await answer
        except TimeoutError:
            name = command.WhichOneof("command")
            raise DeadlineExceeded(f"{self.agent_id} to answer {name}", timeout_seconds) from None
        finally:
            del self._answers[command.command_id]
        if result.error:
            raise ServiceFailed(result.error)
        return result

    def answer(self, result: pb.CommandResult) -> None:
        """Deliver a result to whoever waits for it; nobody waits for a late one."""
        waiting = self._answers.get(result.command_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)

    def gone(self) -> None:
        """The stream ends: whoever waits for an answer learns it now."""
        self.ended.set()
        for waiting in self._answers.values():
            if not waiting.done():
                waiting.set_exception(ServiceFailed(f"{self.agent_id} went away"))


class AgentRegistry:
    """The agents attached now, by id."""

    def __init__(self) -> None:
        self._agents: dict[str, Agent] = {}
        self._changed = asyncio.Condition()

    async def attach(self, agent_id: str, role: str) -> Agent:
        """Add an agent; one of the same id that was attached before is replaced."""
        if (former := self._agents.get(agent_id)) is not None:
            former.gone()
        agent = Agent(agent_id, role)
        async with self._changed:
            self._agents[agent_id] = agent
            self._changed.notify_all()
        return agent

    def detach(self, agent: Agent) -> None:
        """Remove an agent, unless a newer one has taken its id."""
        agent.gone()
        if self._agents.get(agent.agent_id) is agent:
            del self._agents[agent.agent_id]

    def drop_silent(self, seconds: float) -> list[Agent]:
        """Detach agents that were not heard of for `seconds`; their streams may hang half-open for much longer."""
        silent = [a for a in self.all() if time.monotonic() - a.last_heard > seconds]
        for agent in silent:
            self.detach(agent)
        return silent

    def of_role(self, role: str) -> list[Agent]:
        """Agents of a role, ordered by id."""
        return sorted((a for a in self._agents.values() if a.role == role), key=lambda a: a.agent_id)

    def all(self) -> list[Agent]:
        """Every agent, ordered by id."""
        return sorted(self._agents.values(), key=lambda a: a.agent_id)

    async def wait_for(self, role: str, timeout_seconds: float) -> list[Agent]:
        """Agents of a role, waiting until there is at least one.

        Raises:
            DeadlineExceeded: none came.

        """
        async with self._changed:
            try:
                async with asyncio.timeout(timeout_seconds):
                    await self._changed.wait_for(lambda: self.of_role(role))
            except TimeoutError:
                raise DeadlineExceeded(f"a {role} to attach to control", timeout_seconds) from None
            return self.of_role(role)
