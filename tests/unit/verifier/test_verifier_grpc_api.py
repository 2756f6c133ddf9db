import grpc
import grpc.aio
import pytest

from pacs.errors import BadInput
from pacs.pb import verifier_pb2 as pb
from pacs.pb import verifier_pb2_grpc as pb_grpc
from pacs.runtime.grpc_auth import BearerInterceptor
from services.verifier.checkers.exact import ExactChecker
from services.verifier.checkers.registry import Registry
from services.verifier.grpc_api import add_verifier
from services.verifier.item_checks import ItemChecks

pytestmark = pytest.mark.anyio


class Broken(ExactChecker):
    name = "broken"

    async def check(self, completion, answer, task_data):
        raise RuntimeError("broken")

    async def check_gold(self, answer, task_data):
        raise BadInput(f"the row lacks a family, got {sorted(task_data)}")


@pytest.fixture
async def check():
    server = grpc.aio.server(interceptors=[BearerInterceptor("sesame")])
    add_verifier(server, ItemChecks(Registry([ExactChecker(), Broken()])))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = pb_grpc.VerifierStub(channel)

        async def call(*items, metadata=(("authorization", "Bearer sesame"),)):
            request = pb.CheckRequest(items=[pb.CheckItem(**item) for item in items])
            return (await stub.Check(request, metadata=metadata, timeout=30)).results

        yield call
    await server.stop(None)


async def test_answers_in_the_order_of_the_items(check):
    items = [{"task": "exact", "answer": "42", "completion": text} for text in ["42", "43", "<think>"]]
    results = await check(*items, {"task": "broken"})
    assert [(r.label, r.status) for r in results] == [(1, "ok"), (0, "wrong"), (0, "truncated"), (-1, "error")]
    assert results[0].extracted == "42"


async def test_gold_checks_ignore_the_completion(check):
    results = await check(
        {"task": "exact", "answer": "42", "completion": "43", "gold": True},
        {"task": "exact", "answer": " ", "gold": True},
    )
    assert [r.label for r in results] == [1, 0]


async def test_nothing_asked_is_nothing_answered(check):
    assert len(await check()) == 0


async def test_more_items_than_run_at_once_are_all_answered(check):
    results = await check(*({"task": "exact", "answer": str(i), "completion": str(i)} for i in range(300)))
    assert [r.extracted for r in results] == [str(i) for i in range(300)]


@pytest.mark.parametrize(
    "metadata",
    [
        (),
        (("authorization", ""),),
        (("authorization", "Bearer "),),
        (("authorization", "Bearer sesam"),),
        (("authorization", "sesame"),),
        (("token", "Bearer sesame"),),
    ],
)
async def test_a_call_without_the_token_is_not_answered(check, metadata):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await check({"task": "exact", "answer": "42", "completion": "42"}, metadata=metadata)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"task": "chess"}, "'chess'; known are broken, exact"),
        ({"task": "exact", "task_data_json": "{"}, "does not parse"),
        ({"task": "exact", "task_data_json": "[1]"}, "got a list"),
        ({"task": "broken", "gold": True, "task_data_json": '{"entry": 1}'}, "lacks a family, got ['entry']"),
    ],
)
async def test_a_row_that_cannot_be_judged_is_an_invalid_argument_with_the_text(check, item, message):
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await check({"task": "exact", "answer": "42", "completion": "42"}, item)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert message in refused.value.details()


async def test_an_empty_token_is_refused_at_the_start():
    with pytest.raises(BadInput, match="token"):
        BearerInterceptor("")
