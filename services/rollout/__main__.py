"""Starts the rollout: `python -m services.rollout CONFIG`."""

import asyncio
import sys
from pathlib import Path

from pacs.runtime.process import leave, run_service
from services.rollout.settings import Settings

WATCH_SECONDS = 2.0


async def main(settings: Settings, stop: asyncio.Event) -> None:
    """Deploy on Ray Serve and watch until told to stop."""
    from pacs.errors import ServiceFailed
    from services.rollout.ray_serve import RolloutCluster

    cluster = RolloutCluster(settings, Path(sys.argv[1]))
    try:
        await asyncio.to_thread(cluster.start)
        while not stop.is_set():
            if reason := await asyncio.to_thread(cluster.unhealthy):
                raise ServiceFailed(f"Ray Serve gave up on the rollout: {reason}")
            try:
                async with asyncio.timeout(WATCH_SECONDS):
                    await stop.wait()
            except TimeoutError:
                continue
    finally:
        await asyncio.to_thread(cluster.close)


if __name__ == "__main__":
    leave(run_service("rollout", Settings, main))
