"""A learner killed at ten random moments ends with the weights of one that was left alone, to the bit.

The learner, its checkpoints, Redis and control are real. The completions are given beforehand, as a function of the
prompt's number: a sampler would answer the same prompt otherwise after a restart.
"""

import asyncio
import contextlib
import os
import random
import sys
import time

import numpy as np
import pytest
import yaml
from prometheus_client import CollectorRegistry

from pacs.local.ports import free_port
from pacs.pb import control_pb2 as pb
from pacs.testing import assert_eventually, make_config, make_labeled_group
from pacs.transport.interface import Stream
from pacs.transport.memory import MemoryStreams
from pacs.transport.redis_streams import RedisStreams
from pacs.wire.groups import decode_prompt, encode_labeled_group
from services.control.admission import Admission
from services.control.agents import AgentRegistry
from services.control.evaluation import Evaluator
from services.control.grpc_api import serve_grpc
from services.control.handler import ControlHandler
from services.control.metrics import ControlMetrics
from services.control.publication import Publication
from services.control.run_state import Phase, RunState
from tests.control_fakes import make_problems

pytestmark = [pytest.mark.anyio, pytest.mark.redis, pytest.mark.engine]

TOKEN = "sesame"
KILLS = 10
EARLY_KILLS = 2  # of them, before the first publication: while the learner starts, loads and restores
STEPS, GROUPS, SIZE = 100, 4, 4
LONGEST_LIFE = 0.5  # seconds from the first publication to the kill: a few batches
START_SECONDS = 120.0
VOCABULARY = 256


class AtOnce:
    """Makes versions live without weights: nobody samples from them."""

    def __init__(self, agents):
        self._agents = agents
        self.publications = 0
        self.allowed = asyncio.Event()

    async def publish(self, policy_version, *_what):
        await self.allowed.wait()
        (learner,) = await self._agents.wait_for("learner", START_SECONDS)
        await learner.request(pb.Command(open_communicator=pb.OpenCommunicator(timeout_seconds=5.0)), 30.0)
        self.publications += 1
        return Publication(policy_version)


def fixed_group(prompt, policy_version):
    rng = np.random.default_rng(prompt.sequence)
    labels = [1, 0, *rng.integers(0, 2, SIZE - 2).tolist()]
    return make_labeled_group(
        prompt.sequence,
        labels,
        responses=[rng.integers(3, VOCABULARY, rng.integers(2, 24)).tolist() for _ in range(SIZE)],
        token_ids=rng.integers(3, VOCABULARY, rng.integers(2, 9)).astype(np.int32),
        policy_version=policy_version,
    )


class Run:
    """Control, and in place of rollout and verifier somebody who knows all answers beforehand."""

    def __init__(self, config, redis_client, redis_url):
        self.config, self._redis_url = config, redis_url
        self.streams = RedisStreams(redis_client, config.run.name)
        self.state = RunState(redis_client, config.run.name)
        self._agents, problems = AgentRegistry(), make_problems()
        self.publisher = AtOnce(self._agents)
        self.handler = ControlHandler(
            config,
            self.state,
            self.streams,
            self._agents,
            Admission(config, problems, self.streams, self.state),
            Evaluator(config, problems, MemoryStreams(), self.state),
            self.publisher,
            ControlMetrics(CollectorRegistry(), config.run.name),
        )
        self.port = free_port()

    @contextlib.asynccontextmanager
    async def open(self):
        await self.streams.prepare()
        server = await serve_grpc(self.handler, self._agents, TOKEN, f"127.0.0.1:{self.port}")
        tasks = [asyncio.create_task(work) for work in (self.handler.admit_forever(), self._answer())]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.stop(None)

    async def _answer(self):
        while True:
            for delivery in await self.streams.read(Stream.PROMPTS, "rollout-0", 8, 1.0):
                labeled = fixed_group(decode_prompt(delivery.payload), await self.state.policy_version())
                await self.streams.hand_over(
                    Stream.PROMPTS, delivery.entry_id, Stream.LABELED, encode_labeled_group(labeled)
                )

    @contextlib.asynccontextmanager
    async def learner(self, log):
        """The learner's process; killed if it still runs at the end of the block."""
        path = self.config.run.path / "config.yaml"
        environment = {"PACS_REDIS_URL": self._redis_url, "PACS_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
        environment["PACS_CONTROL_ADDRESS"] = f"127.0.0.1:{self.port}"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.learner", path, stderr=log, stdout=log, env={**os.environ, **environment}
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def published(self, process):
        """Allow a publication and wait for it; fail at once if the process ends first."""
        before = self.publisher.publications
        self.publisher.allowed.set()

        def more():
            assert process.returncode is None or self.publisher.publications > before
            return self.publisher.publications > before

        await assert_eventually(more, START_SECONDS)

    async def killed(self, log, rng, start_seconds):
        """One life, killed at a random moment: of its start if that takes `start_seconds`, else of its work.

        Returns the moment, seconds, and how long the start took.
        """
        self.publisher.allowed.clear()
        publications, began = self.publisher.publications, time.monotonic()
        async with self.learner(log) as process:
            if not start_seconds:
                await self.published(process)
            started = time.monotonic() - began
            moment = rng.uniform(0.0, start_seconds or LONGEST_LIFE)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), moment)
            assert process.returncode is None, "the learner ended before it was killed; its log says why"
        assert not start_seconds or self.publisher.publications == publications
        return moment, started

    async def killed_again_and_again(self, log, rng, kills):
        """Lives that end by SIGKILL; of the second and later ones some in their start."""
        early, start_seconds = set(rng.sample(range(1, kills), EARLY_KILLS)) if kills else set(), 0.0
        for life in range(kills):
            moment, started = await self.killed(log, rng, start_seconds if life in early else 0.0)
            sys.stderr.write(f"killed {moment:.3f} s after its {'start' if life in early else 'first publication'}\n")
            start_seconds = start_seconds if life in early else started

    async def finished(self):
        async def is_finished():
            return await self.state.phase() is Phase.FINISHED

        await assert_eventually(is_finished, START_SECONDS)


def configured(directory, model, name):
    config = make_config(
        {
            "run.name": name,
            "run.directory": directory,
            "run.max_steps": STEPS,
            "run.groups_per_step": GROUPS,
            "run.max_staleness": 0,
            "model.path": model,
            "rollout.group_size": SIZE,
            "algorithm.reference": "interval",
            "reset.every_steps": 7,
            "learner.learning_rate": 1e-3,
            "learner.warmup_steps": 4,
            "learner.minibatch_groups": 2,
            "learner.checkpoint_every_steps": 5,
            "learner.metrics_port": free_port(),
        }
    )
    config.run.path.mkdir(parents=True)
    (config.run.path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    return config


@pytest.mark.timeout(600)
async def test_a_learner_killed_at_ten_random_moments_ends_with_the_same_weights(
    redis_client, redis_server, tiny_models, tmp_path
):
    seed = int(os.environ.get("KILL_SEED") or random.randrange(2**32))
    sys.stderr.write(f"moments are of KILL_SEED={seed}\n")  # shown where the test fails
    rng = random.Random(seed)
    exports, trained_twice = {"untrained": (tiny_models[0] / "model.safetensors").read_bytes()}, 0
    with (tmp_path / "learner.log").open("ab") as log:
        for name, kills in (("whole", 0), ("killed", KILLS)):
            config = configured(tmp_path, tiny_models[0], name)
            async with Run(config, redis_client, redis_server.url).open() as run:
                await run.killed_again_and_again(log, rng, kills)
                assert await run.state.phase() is not Phase.FINISHED, "all kills must come before the end"
                async with run.learner(log) as process:
                    await run.published(process)
                    await run.finished()
                ledger = await run.streams.ledger()
                assert (ledger.trained, ledger.in_flight, ledger.next_sequence) == (STEPS * GROUPS, 0, STEPS * GROUPS)
                assert await run.state.reference_epoch() == (STEPS - 1) // 7
                steps = [entry["step"] for entry in await run.handler.history(0) if entry["kind"] == "step"]
                assert steps[-1] == STEPS
                trained_twice = len(steps) - len(set(steps))  # at least: a report may have died with its batch
            exports[name] = (config.run.path / "export" / "model.safetensors").read_bytes()
    sys.stderr.write(f"{trained_twice} batches were trained twice\n")
    assert trained_twice > 0, "no kill fell between a batch and its checkpoint"
    assert exports["killed"] == exports["whole"]
    assert exports["whole"] != exports["untrained"]
