"""Asks the verifier whether every gold verifies against itself."""

import json
from collections.abc import Sequence

import grpc

from pacs.data.problems import Problem
from pacs.errors import BadInput, DeadlineExceeded
from pacs.pb import verifier_pb2 as pb
from pacs.pb.verifier_pb2_grpc import VerifierStub
from pacs.runtime.grpc_auth import bearer_metadata

__all__ = ["GoldChecker"]

BATCH = 256  # keeps a message small and lets a slow set make progress
CORRECT = 1


class GoldChecker:
    """Client of the verifier's Check call.

    Args:
        address: the verifier's host:port.
        token: bearer token.
        deadline_seconds: for one batch, the wait for the verifier to start included.

    """

    def __init__(self, address: str, token: str, deadline_seconds: float) -> None:
        self._address = address
        self._token = token
        self._deadline_seconds = deadline_seconds

    async def __call__(self, problems: Sequence[Problem]) -> list[str]:
        """For each problem: empty if its gold verifies, else the status.

        Raises:
            BadInput: a task that the verifier does not know or refuses.
            DeadlineExceeded: the verifier did not answer in time.

        """
        complaints: list[str] = []
        async with grpc.aio.insecure_channel(self._address) as channel:
            stub = VerifierStub(channel)
            for start in range(0, len(problems), BATCH):
                complaints += await self._check(stub, problems[start : start + BATCH])
        return complaints

    async def _check(self, stub: VerifierStub, problems: Sequence[Problem]) -> list[str]:
        items = [
            pb.CheckItem(task=p.task, answer=p.answer, task_data_json=json.dumps(dict(p.task_data)), gold=True)
            for p in problems
        ]
        try:
            reply = await stub.Check(
                pb.CheckRequest(items=items),
                metadata=bearer_metadata(self._token),
                wait_for_ready=True,
                timeout=self._deadline_seconds,
            )
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                waited_for = f"the verifier at {self._address} to check {len(problems)} golds"
                raise DeadlineExceeded(waited_for, self._deadline_seconds) from error
            raise BadInput(f"the verifier refused the data: {error.details()}") from error
        return ["" if result.label == CORRECT else result.status for result in reply.results]
