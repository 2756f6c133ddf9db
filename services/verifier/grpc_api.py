"""The verifier alone, over gRPC: for control's gold checks and for other systems."""

import json
from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio

from pacs.errors import BadInput
from pacs.pb import verifier_pb2 as pb
from pacs.pb import verifier_pb2_grpc as pb_grpc
from services.verifier.checkers.interface import Judgement
from services.verifier.item_checks import Item, ItemChecks

__all__ = ["add_verifier"]

Context = grpc.aio.ServicerContext[pb.CheckRequest, pb.CheckReply]


def add_verifier(server: grpc.aio.Server, checks: ItemChecks) -> None:
    """Serve `Verifier.Check`; the server turns away calls without the token."""
    pb_grpc.add_VerifierServicer_to_server(VerifierServicer(checks), server)


class VerifierServicer(pb_grpc.VerifierServicer):
    """Answers `Check`; see `proto/pacs/pb/verifier.proto`."""

    def __init__(self, checks: ItemChecks) -> None:
        self._checks = checks

    async def Check(self, request: pb.CheckRequest, context: Context) -> pb.CheckReply:
        """Judge the items side by side and answer in their order."""
        judgements, refusal = [], ""
        try:
            judgements = await self._checks.check([_item(item) for item in request.items])
        except BadInput as error:
            refusal = str(error)
        if refusal:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, refusal)
        return pb.CheckReply(results=map(_result, judgements))


def _item(item: pb.CheckItem) -> Item:
    return Item(item.task, item.completion, item.answer, _task_data(item.task_data_json), item.gold)


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
