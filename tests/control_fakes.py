"""Control's surroundings in a test: agents that answer by script, problems, and control itself wired to them."""

import asyncio
import contextlib
from dataclasses import dataclass, field

import numpy as np
from prometheus_client import CollectorRegistry

from pacs.data.problems import Problem
from pacs.pb import control_pb2 as pb
from pacs.testing import make_config, make_group, make_labeled_group
from pacs.transport.interface import Stream
from pacs.transport.memory import MemoryStreams
from pacs.wire.groups import LabeledGroup, decode_prompt, encode_labeled_group
from services.control.admission import Admission
from services.control.agents import AgentRegistry
from services.control.evaluation import Evaluator
from services.control.handler import ControlHandler
from services.control.metrics import ControlMetrics
from services.control.problem_set import PreparedProblem, ProblemSet
from services.control.publication import Publisher
from services.control.run_state import Phase, RunState

TENSORS = [pb.TensorMeta(name=name, dtype="float32", shape=[2]) for name in ("embed", "head")]
PROBE = np.array([1, 2, 3], dtype=np.int32)
NEVER = object()  # a script's way of not answering


def logprobs(*values):
    return np.array(values, dtype="<f4").tobytes()


@dataclass
class ScriptedAgent:
    """Attached to the registry; answers every command as a sound agent would, or as `script` says.

    A script's value is a CommandResult, an error text, NEVER, or a function of the command that returns one of them.
    """

    agents: AgentRegistry
    agent_id: str
    script: dict = field(default_factory=dict)
    heard: list = field(default_factory=list)
    log: list = field(default_factory=list)  # may be shared: (agent, command) in the order they came

    @classmethod
    async def attach(cls, agents, agent_id, script=None, log=None):
        fake = cls(agents, agent_id, script or {}, log=[] if log is None else log)
        fake.agent = await agents.attach(agent_id, agent_id.split("-")[0])
        fake.task = asyncio.create_task(fake._serve())
        return fake

    def names(self):
        return [command.WhichOneof("command") for command in self.heard]

    async def _serve(self):
        while True:
            command = await self.agent.commands.get()
            name = command.WhichOneof("command")
            self.heard.append(command)
            self.log.append((self.agent_id, name))
            answer = self.script.get(name, _sound_answer)
            answer = answer(command) if callable(answer) else answer
            if answer is NEVER:
                continue
            result = pb.CommandResult(error=answer) if isinstance(answer, str) else answer
            result.command_id = command.command_id
            self.agent.answer(result)


def _sound_answer(command):
    match command.WhichOneof("command"):
        case "open_communicator":
            return pb.CommandResult(address="learner:1")
        case "transfer_weights":
            return pb.CommandResult(digests=[f"digest of {t.name}" for t in command.transfer_weights.tensors])
        case "probe":
            return pb.CommandResult(probe_logprobs=logprobs(-1.0, -2.0))
    return pb.CommandResult()


@contextlib.asynccontextmanager
async def attached(agents, *ids, scripts=None, log=None):
    """Agents by id, attached in this order."""
    fakes = {name: await ScriptedAgent.attach(agents, name, (scripts or {}).get(name), log) for name in ids}
    try:
        yield fakes
    finally:
        for fake in fakes.values():
            fake.task.cancel()
            agents.detach(fake.agent)


def make_problems(training=5, heldout=0):
    def prepared(kind, count):
        return tuple(
            PreparedProblem(
                Problem(f"{kind}-{n}", ({"role": "user", "content": f"{n}?"},), f"{n}?", "exact", str(n)),
                np.arange(n + 1, dtype=np.int32),
            )
            for n in range(count)
        )

    return ProblemSet(prepared("train", training), prepared("held", heldout), {})


class Control:
    """Control over streams in memory and a state in Redis."""

    def __init__(self, redis_client, overrides=None, problems=None):
        self.config = make_config({"publication.phase_seconds": 5.0, **(overrides or {})})
        self.problems = problems or make_problems()
        self.state = RunState(redis_client, self.config.run.name)
        self.training, self.evaluation = MemoryStreams(), MemoryStreams()
        self.agents, self.registry = AgentRegistry(), CollectorRegistry()
        self.admission = Admission(self.config, self.problems, self.training, self.state)
        self.evaluator = Evaluator(self.config, self.problems, self.evaluation, self.state)
        self.publisher = Publisher(self.config, self.agents, PROBE)
        self.handler = ControlHandler(
            self.config,
            self.state,
            self.training,
            self.agents,
            self.admission,
            self.evaluator,
            self.publisher,
            ControlMetrics(self.registry, self.config.run.name),
        )

    async def run_phase(self, phase=Phase.RUNNING):
        await self.state.set_phase(phase)
        return self


def publish_request(step=0, groups_trained=0, reference_epoch=0):
    return pb.PublishRequest(step=step, groups_trained=groups_trained, tensors=TENSORS, reference_epoch=reference_epoch)


@contextlib.asynccontextmanager
async def answering(streams, label_of):
    """Rollout and verifier in one: every prompt comes back labelled as `label_of(prompt)` says; None: it is dropped."""

    async def serve():
        while True:
            for delivery in await streams.read(Stream.PROMPTS, "stage", 8, 1.0):
                prompt = decode_prompt(delivery.payload)
                labels = label_of(prompt)
                if labels is None:
                    await streams.drop(Stream.PROMPTS, delivery.entry_id, "invalid")
                    continue
                labeled = make_labeled_group(prompt.sequence, labels)
                group = make_group(prompt.sequence, [c.token_ids for c in labeled.group.completions])
                labeled = LabeledGroup(type(group)(prompt, group.completions), labeled.verdicts)
                tokens = sum(len(c.token_ids) for c in group.completions)
                payload = encode_labeled_group(labeled)
                await streams.hand_over(Stream.PROMPTS, delivery.entry_id, Stream.LABELED, payload, tokens)

    task = asyncio.create_task(serve())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
