"""The verifier alone, over gRPC: for control's gold checks and for other systems."""

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import grpc
import grpc.aio

from pacs.errors import BadInput
from pacs.pb import verifier_pb2 as pb
from pacs.pb import verifier_pb2_grpc as pb_grpc
from services.verifier.checkers.interface import Judgement
from services.verifier.checkers.registry import Registry
from services.verifier.judging import judge

__all__ = ["add_verifier"]

CHECKS_AT_ONCE = 64
"""Over all calls: bounds the texts in memory, not the work, which the checkers' own pools bound."""

Context = grpc.aio.ServicerContext[pb.CheckRequest, pb.CheckReply]


def add_verifier(server: grpc.aio.Server, registry: Registry) -> None:
    """Serve `Verifier.Check` over the checkers of the registry; the server turns away calls without the token."""
    pb_grpc.add_VerifierServicer_to_server(VerifierServicer(registry), server)


class VerifierServicer(pb_grpc.VerifierServicer):
    """Answers `Check`; see `proto/pacs/pb/verifier.proto`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._free = asyncio.Semaphore(CHECKS_AT_ONCE)

    async def Check(self, request: pb.CheckRequest, context: Context) -> pb.CheckReply:
        """Judge the items side by side and answer in their order."""
        refusal = ""
        try:
            async with asyncio.TaskGroup() as checks:
                tasks = [checks.create_task(self._check(index, item)) for index, item in enumerate(request.items)]
        except* BadInput as group:
            refusal = str(group.exceptions[0])
        if refusal:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, refusal)
        return pb.CheckReply(results=[task.result() for task in tasks])

    async def _check(self, index: int, item: pb.CheckItem) -> pb.CheckResult:
        checker = self._registry.get(item.task)
        task_data = _task_data(item.task_data_json)
        check = (
            partial(checker.check_gold, item.answer, task_data)
            if item.gold
            else partial(checker.check, item.completion, item.answer, task_data)
        )
        async with self._free:
            return _result(await judge(check, f"item {index} of a Check call, task {item.task}"))


def _task_data(text: str) -> Mapping[str, Any]:
    try:
        data = json.loads(text) if text else {}
    except ValueError as error:
        raise BadInput(f"task_data_json must be a JSON object, got text that does not parse: {error}") from error
    if not isinstance(data, dict):
        raise BadInput(f"task_data_json must be a JSON object, got a {type(data).__name__}")
    return data


def _result(judgement: Judgement) -> pb.CheckResult:
    return pb.CheckResult(
        label=judgement.label.value,
        status=judgement.status,
        method=judgement.method,
        seconds=judgement.seconds,
        extracted=judgement.extracted,
    )
