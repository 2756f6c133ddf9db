"""Starts control: `python -m services.control CONFIG`."""

import asyncio
import contextlib

from pacs.runtime.process import leave, run_service
from services.control.settings import Settings


async def main(settings: Settings, stop: asyncio.Event) -> None:
    """Wire control and serve until told to stop."""
    import uvicorn
    from prometheus_client import CollectorRegistry

    from pacs.data.chat_tokenizer import ChatTokenizer
    from pacs.data.problems import load_problems
    from pacs.runtime.tasks import end_tasks
    from pacs.transport.interface import Lane
    from pacs.transport.redis_client import connect
    from pacs.transport.redis_streams import RedisStreams, check_server
    from services.control.admission import Admission
    from services.control.agents import AgentRegistry
    from services.control.evaluation import Evaluator
    from services.control.gold_check import GoldChecker
    from services.control.grpc_api import serve_grpc
    from services.control.handler import ControlHandler
    from services.control.http_api import make_app
    from services.control.metrics import ControlMetrics
    from services.control.probe import probe_token_ids
    from services.control.problem_set import prepare
    from services.control.publication import Publisher
    from services.control.run_state import Phase, RunState

    config, token = settings.config, settings.bearer_token
    client = connect(settings.redis_url.get_secret_value())
    await check_server(client)
    state = RunState(client, config.run.name)
    training, evaluation = (RedisStreams(client, config.run.name, lane) for lane in Lane)
    await training.prepare()
    await evaluation.prepare()

    registry = CollectorRegistry()
    metrics = ControlMetrics(registry, config.run.name)
    checker = GoldChecker(settings.verifier_target, token, config.control.gold_check_seconds)
    problems = await prepare(
        *load_problems(config.data, config.run.seed),
        tokenize=ChatTokenizer(config.model.path),
        check_golds=checker,
        max_prompt_tokens=config.data.max_prompt_tokens,
    )
    for reason, rows in problems.refused.items():
        metrics.show_refused(reason, rows)

    agents = AgentRegistry()
    publisher = Publisher(config, agents, probe_token_ids(problems.training, config.publication.probe_tokens))
    handler = ControlHandler(
        config,
        state,
        training,
        agents,
        Admission(config, problems, training, state),
        Evaluator(config, problems, evaluation, state),
        publisher,
        metrics,
    )
    if await state.phase() is not Phase.PAUSED:
        await state.set_phase(Phase.STARTING)  # opened again by the learner: it attaches or publishes
    grpc_server = await serve_grpc(handler, agents, token, f"{settings.bind_host}:{settings.grpc_port}")
    http_server = uvicorn.Server(
        uvicorn.Config(
            make_app(handler, registry, token), settings.bind_host, settings.http_port, log_config=None, lifespan="off"
        )
    )
    http_server.capture_signals = contextlib.nullcontext  # signals are ours
    work = [asyncio.create_task(http_server.serve()), asyncio.create_task(handler.admit_forever())]
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({*work, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for task in work:
            if task.done():
                task.result()
    finally:
        http_server.should_exit = True
        await end_tasks([work[1], stopped])
        await grpc_server.stop(grace=1.0)
        await asyncio.gather(*work, return_exceptions=True)
        await client.aclose()


if __name__ == "__main__":
    leave(run_service("control", Settings, main))
