"""Starts the verifier: `python -m services.verifier CONFIG`.

Waits for / is unblocked by: groups in the completions stream of either lane / the rollout.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING

from pacs.runtime.process import leave, run_service
from services.verifier.settings import Settings

if TYPE_CHECKING:
    import uvicorn


async def serve_until(server: "uvicorn.Server", stop: asyncio.Event) -> None:
    """Serve HTTP until told to stop."""
    serving, stopped = asyncio.create_task(server.serve()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        stopped.cancel()
        await serving


async def main(settings: Settings, stop: asyncio.Event) -> None:
    """Wire the verifier and judge until told to stop."""
    import grpc
    import uvicorn
    from prometheus_client import CollectorRegistry

    from pacs.runtime.grpc_auth import BearerInterceptor
    from pacs.runtime.health_server import HealthServer
    from pacs.runtime.worker import Drop, HandOver, StageWorker
    from pacs.transport.interface import Lane, Stream
    from pacs.transport.redis_client import connect
    from pacs.transport.redis_streams import RedisStreams, check_server
    from pacs.wire.groups import Label, decode_group, encode_labeled_group
    from services.verifier.cache import VerdictCache
    from services.verifier.checkers.registry import load_registry
    from services.verifier.control_link import pause_over_http
    from services.verifier.grpc_api import add_verifier
    from services.verifier.handler import VerifierHandler
    from services.verifier.http_api import make_app
    from services.verifier.invalid_watch import InvalidWatch
    from services.verifier.item_checks import ItemChecks
    from services.verifier.metrics import VerifierMetrics
    from services.verifier.starting import start_checker

    config = settings.config
    collector = CollectorRegistry()
    checkers = load_registry(config.verifier)
    await start_checker(checkers, config.data)
    watch = InvalidWatch(
        config.verifier.invalid_window,
        config.verifier.max_invalid_share,
        pause_over_http(settings.control_http_url, settings.bearer_token),
    )
    cache = VerdictCache(config.verifier.cache_entries)
    handler = VerifierHandler(checkers, VerifierMetrics(collector, config.run.name), cache, watch)

    async def handle(payload: bytes) -> HandOver | Drop:
        labeled = await handler.handle(decode_group(payload))
        if all(label is Label.INVALID for label in labeled.labels):
            return Drop("invalid")
        return HandOver(encode_labeled_group(labeled))

    client = connect(settings.redis_url.get_secret_value())
    await check_server(client)
    gate = asyncio.Event()
    gate.set()  # labels do not depend on the weights
    workers = []
    for lane in (Lane.EVALUATION, Lane.TRAIN):
        streams = RedisStreams(client, config.run.name, lane, config.verifier.claim_seconds)
        await streams.prepare()
        workers.append(
            StageWorker(
                streams=streams,
                source=Stream.COMPLETIONS,
                target=Stream.LABELED,
                consumer=settings.consumer,
                handle=handle,
                concurrency=config.verifier.concurrent_groups,
                max_deliveries=config.verifier.max_deliveries,
                gate=gate,
            )
        )
    server = grpc.aio.server(interceptors=[BearerInterceptor(settings.bearer_token)])
    checks = ItemChecks(checkers)
    add_verifier(server, checks)
    server.add_insecure_port(f"{settings.bind_host}:{config.verifier.grpc_port}")
    await server.start()
    http_server = uvicorn.Server(
        uvicorn.Config(
            make_app(checks, settings.bearer_token),
            settings.bind_host,
            config.verifier.http_port,
            log_config=None,
            lifespan="off",
        )
    )
    http_server.capture_signals = contextlib.nullcontext  # signals are ours
    health = HealthServer(collector, lambda: "", settings.bind_host, config.verifier.metrics_port)
    try:
        async with asyncio.TaskGroup() as group:
            for worker in workers:
                group.create_task(worker.run(stop))
            group.create_task(watch.run(stop))
            group.create_task(serve_until(http_server, stop))
    finally:
        await server.stop(grace=1.0)
        await checkers.close()
        await client.aclose()
        health.close()


if __name__ == "__main__":
    leave(run_service("verifier", Settings, main))
