"""What control knows about a run, in Redis, so that control itself can be killed and started again at any time."""

import enum
import json
import time
from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis

__all__ = ["Phase", "RunState"]

VERSIONS_KEPT = 256  # no group is in flight for longer than that many publications


class Phase(enum.Enum):
    """Where a run is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"
    FINISHED = "finished"


class RunState:
    """The run's hash and its history of steps, evaluations and publications.

    Args:
        client: with `decode_responses=False`.
        run: name of the run; the keys' hash tag.

    """

    def __init__(self, client: "Redis", run: str) -> None:
        self._client = client
        self._key = f"{{{run}}}:state"
        self._history = f"{{{run}}}:history"
        self._versions = f"{{{run}}}:versions"

    async def phase(self) -> Phase:
        """The phase last written; STARTING at first."""
        return Phase((await self._get("phase") or b"starting").decode())

    async def set_phase(self, phase: Phase) -> None:
        """Write the phase."""
        await self._client.hset(self._key, "phase", phase.value)

    async def policy_version(self) -> int:
        """Version committed last; 0 before the first publication."""
        return int(await self._get("policy_version") or 0)

    async def reference_epoch(self) -> int:
        """Hard resets so far."""
        return int(await self._get("reference_epoch") or 0)

    async def live_groups(self) -> int:
        """Groups whose gradient the live weights hold: their admission slots are free again."""
        return int(await self._get("live_groups") or 0)

    async def step(self) -> int:
        """Batches the live weights were trained on."""
        return int(await self._get("step") or 0)

    async def commit_version(self, policy_version: int, step: int, live_groups: int, reference_epoch: int) -> None:
        """Make a version the live one, with what it was trained on, in one step."""
        values = {
            "policy_version": policy_version,
            "step": step,
            "live_groups": live_groups,
            "reference_epoch": reference_epoch,
        }
        pipeline = self._client.pipeline(transaction=True)
        pipeline.hset(self._key, mapping=values)
        pipeline.hset(self._versions, str(policy_version), step)
        pipeline.hdel(self._versions, str(policy_version - VERSIONS_KEPT))
        await pipeline.execute()

    async def version_steps(self) -> dict[int, int]:
        """Batches behind each of the last versions."""
        return {int(version): int(step) for version, step in (await self._client.hgetall(self._versions)).items()}

    async def wanted_reset(self) -> tuple[int, str]:
        """The reference epoch that was asked for last, and why; 0 at first."""
        epoch, reason = await self._client.hmget(self._key, "wanted_epoch", "wanted_reason")
        return int(epoch or 0), (reason or b"").decode()

    async def want_reset(self, reference_epoch: int, reason: str) -> None:
        """Remember a reset that the learner is to do, until a version of that epoch is live."""
        await self._client.hset(self._key, mapping={"wanted_epoch": reference_epoch, "wanted_reason": reason})

    async def evaluations_without_gain(self, accuracy: float, reference_epoch: int) -> int:
        """Note an accuracy; returns how many in a row were no better than the best of this reference epoch."""
        fields = ("best_epoch", "best_accuracy", "without_gain")
        epoch, best, count = await self._client.hmget(self._key, *fields)
        better = best is None or int(epoch) != reference_epoch or accuracy > float(best)
        values = (reference_epoch, accuracy if better else float(best), 0 if better else int(count) + 1)
        await self._client.hset(self._key, mapping=dict(zip(fields, values, strict=True)))
        return int(values[2])

    async def evaluated_version(self) -> int:
        """Version evaluated last; 0 before the first evaluation."""
        return int(await self._get("evaluated_version") or 0)

    async def heldout_accuracy(self) -> float | None:
        """Of the last evaluation; None before the first."""
        accuracy: float | None = json.loads(await self._get("heldout_accuracy") or b"null")
        return accuracy

    async def record_evaluation(self, figures: Mapping[str, Any]) -> None:
        """Add an evaluation to the history and remember its version, in one step."""
        pipeline = self._client.pipeline(transaction=True)
        pipeline.hset(self._key, "evaluated_version", figures["policy_version"])
        pipeline.hset(self._key, "heldout_accuracy", json.dumps(figures["accuracy"]))
        pipeline.rpush(self._history, _entry("evaluation", figures))
        await pipeline.execute()

    async def record(self, kind: str, figures: Mapping[str, Any]) -> None:
        """Add a step or a publication to the history."""
        await self._client.rpush(self._history, _entry(kind, figures))

    async def history(self, after: int = 0) -> list[dict[str, Any]]:
        """Entries from number `after` on, oldest first."""
        return [json.loads(entry) for entry in await self._client.lrange(self._history, after, -1)]

    async def _get(self, field: str) -> bytes | None:
        value: bytes | None = await self._client.hget(self._key, field)
        return value


def _entry(kind: str, figures: Mapping[str, Any]) -> str:
    return json.dumps({"kind": kind, "time": time.time(), **figures})
