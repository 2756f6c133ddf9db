"""One replica, wired: an engine, a worker a lane, the stream to control. Knows no Ray.

Waits for / is unblocked by
    * the workers: prompts / control's admission, and the gate / a verified publication.
    * the agent: commands / control.
"""

import asyncio
from typing import Any, Self

from prometheus_client import CollectorRegistry

from pacs.errors import ServiceFailed
from pacs.runtime.agent import AgentClient
from pacs.runtime.health_server import HealthServer
from pacs.runtime.worker import StageWorker
from pacs.transport.interface import Lane, Stream
from pacs.transport.redis_client import connect
from pacs.transport.redis_streams import RedisStreams, check_server
from services.rollout.engine import SamplingEngine
from services.rollout.handler import RolloutHandler
from services.rollout.metrics import RolloutMetrics
from services.rollout.settings import Settings
from services.rollout.weight_receiver import WeightReceiver

__all__ = ["Replica"]


class Replica:
    """Runs until closed; make it with `start`.

    Args:
        settings: of the rollout.
        engine: samples; the replica closes it.

    """

    def __init__(self, settings: Settings, engine: SamplingEngine) -> None:
        config = settings.config
        self.engine = engine
        self._stop = asyncio.Event()
        self._gate = asyncio.Event()
        registry = CollectorRegistry()
        metrics = RolloutMetrics(registry, config.run.name, settings.agent_id)
        self._client = connect(settings.redis_url.get_secret_value())
        handler = RolloutHandler(engine, metrics)
        self._lanes = [
            RedisStreams(self._client, config.run.name, lane, config.rollout.claim_seconds)
            for lane in (Lane.EVALUATION, Lane.TRAIN)
        ]
        slots = (config.rollout.max_sequences, config.rollout.max_sequences // config.rollout.group_size)
        self._workers = [
            StageWorker(
                streams=lane,
                source=Stream.PROMPTS,
                target=Stream.COMPLETIONS,
                consumer=settings.agent_id,
                handle=handler.handle,
                concurrency=groups,
                max_deliveries=config.rollout.max_deliveries,
                gate=self._gate,
            )
            for lane, groups in zip(self._lanes, slots, strict=True)
        ]
        self._receiver = WeightReceiver(engine, self._gate, self._abandon, metrics, config.model.lora)
        self._agent = AgentClient(
            settings.control_target,
            settings.bearer_token,
            settings.agent_id,
            "rollout",
            config.control.heartbeat_seconds,
            self._receiver.carry_out,
            waiting_for=self._waiting_for,
            gauges=lambda: {"completion_tokens_total": float(engine.completion_tokens_total)},
            policy_version=lambda: self._receiver.policy_version,
        )
        self._health = HealthServer(registry, self._waiting_for, settings.bind_host, config.rollout.metrics_port)
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def start(cls, settings: Settings) -> Self:
        """Load the engine and begin to work."""
        from services.rollout.vllm_engine import VllmEngine

        config = settings.config
        engine = await VllmEngine.start(
            config.model.path,
            dtype=config.model.dtype,
            seed=config.run.seed,
            max_model_tokens=config.model.max_tokens,
            max_sequences=config.rollout.max_sequences,
            kv_cache_gib=config.rollout.kv_cache_gib,
        )
        replica = cls(settings, engine)
        await replica._begin()
        return replica

    async def check_health(self) -> None:
        """Raise `ServiceFailed` where the engine or one of the loops has ended."""
        await self.engine.check_health()
        for task in self._tasks:
            if task.done() and not self._stop.is_set():
                error = None if task.cancelled() else task.exception()
                raise ServiceFailed(f"the replica's {task.get_name()} ended: {error}")

    async def close(self) -> None:
        """Stop taking, give groups in hand a moment, leave the rest pending, close the engine."""
        self._stop.set()
        await asyncio.wait(self._tasks, timeout=10)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._health.close()
        await self.engine.close()
        await self._client.aclose()

    async def _begin(self) -> None:
        await check_server(self._client)
        for lane in self._lanes:
            await lane.prepare()
        loops: dict[str, Any] = {"agent": self._agent.run(self._stop)}
        loops |= {f"worker {n}": worker.run(self._stop) for n, worker in enumerate(self._workers)}
        self._tasks = [asyncio.create_task(loop, name=name) for name, loop in loops.items()]

    async def _abandon(self) -> None:
        for worker in self._workers:
            await worker.abandon()

    def _waiting_for(self) -> str:
        return "" if self._gate.is_set() else "a verified publication of weights"
