"""The edge to Ray Serve: a deployment whose replicas each hold one `Replica`, and completions over HTTP for people.

Training data never passes Serve's request path: a replica pulls its prompts from the stream. Serve starts, watches and
restarts replicas, and answers OpenAI-style `/v1/completions`.
"""

import asyncio
import os
import signal
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import ray  # noqa: TID253  # this file wraps it
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from ray import serve  # noqa: TID253

from pacs.runtime.family import end_session
from pacs.wire.groups import Prompt
from services.rollout.engine import PromptTooLong
from services.rollout.replica import Replica
from services.rollout.settings import Settings

__all__ = ["RolloutCluster"]

APPLICATION = "rollout"
OBJECT_STORE_BYTES = 128 * 2**20  # nothing of ours goes through it

app = FastAPI(title="PACS rollout", docs_url=None, redoc_url=None)


class CompletionRequest(BaseModel):
    """What of the OpenAI completions request is honoured; the rest is ignored."""

    prompt: str
    n: int = Field(1, ge=1, le=64)
    max_tokens: int = Field(128, ge=1)
    temperature: float = Field(1.0, ge=0)


@serve.deployment(max_ongoing_requests=32, health_check_period_s=5, health_check_timeout_s=60)
@serve.ingress(app)
class RolloutReplica:
    """One engine; Serve calls `check_health` and, when stopping, the destructor."""

    def __init__(self, config_path: str) -> None:
        self._settings = Settings.load(Path(config_path))
        self._starting = asyncio.get_running_loop().create_task(Replica.start(self._settings))

    async def check_health(self) -> None:
        if self._starting.done():
            await self._starting.result().check_health()

    async def started(self) -> bool:
        await self._starting
        return True

    @app.post("/v1/completions")
    async def completions(self, request: CompletionRequest) -> dict[str, Any]:
        """Complete a bare text with the live weights."""
        engine = (await self._starting).engine
        prompt = Prompt(
            sequence=0,
            prompt_id=uuid.uuid4().hex,
            token_ids=np.asarray(engine.encode(request.prompt), dtype=np.int32),
            text=request.prompt,
            task="",
            answer="",
            group_size=request.n,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
        )
        try:
            group = await engine.sample(prompt)
        except PromptTooLong as error:
            raise HTTPException(400, str(error)) from error
        choices = [
            {"index": i, "text": c.text, "finish_reason": c.finish_reason, "logprobs": None}
            for i, c in enumerate(group.completions)
        ]
        return {"id": prompt.prompt_id, "object": "text_completion", "created": int(time.time()), "choices": choices}

    async def __del__(self) -> None:
        if self._starting.done() and self._starting.exception() is None:
            await self._starting.result().close()


class RolloutCluster:
    """Ray and the deployment, from the driver's side.

    Args:
        settings: of the rollout.
        config_path: the run's file, read again by every replica.

    """

    def __init__(self, settings: Settings, config_path: Path) -> None:
        self._settings = settings
        self._config_path = config_path.resolve()

    def start(self) -> None:
        """Start Ray on this machine, or join the one named by RAY_ADDRESS, and deploy; returns when replicas are up."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        local = not os.environ.get("RAY_ADDRESS")
        sizes = {"object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False} if local else {}
        ray.init(log_to_driver=True, logging_level="WARNING", configure_logging=False, **sizes)
        port = self._settings.config.rollout.http_port
        serve.start(http_options={"host": self._settings.bind_host, "port": port})
        deployment: Any = RolloutReplica  # what the decorators make of it
        bound = deployment.options(num_replicas=1, ray_actor_options={"num_cpus": 1}).bind(str(self._config_path))
        handle = serve.run(bound, name=APPLICATION, route_prefix="/")
        handle.started.remote().result(timeout_s=self._settings.config.rollout.start_seconds)

    def unhealthy(self) -> str:
        """Why the application cannot go on; empty while it runs or restarts a replica."""
        status = serve.status().applications[APPLICATION]
        failed = str(status.status) in ("ApplicationStatus.DEPLOY_FAILED", "DEPLOY_FAILED")
        return status.message if failed else ""

    def close(self) -> None:
        """Stop replicas, Serve and, where it was ours, Ray."""
        signal.alarm(0)  # Ray takes a SIGTERM for a crash and has the process killed three seconds later
        serve.shutdown()
        ray.shutdown()
        end_session()  # Ray's agents outlive their raylet
