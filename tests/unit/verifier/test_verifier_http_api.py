import httpx
import pytest

from services.verifier.checkers.exact import ExactChecker
from services.verifier.checkers.registry import Registry
from services.verifier.http_api import make_app
from services.verifier.item_checks import ItemChecks
from tests.unit.verifier.test_verifier_grpc_api import Broken

pytestmark = pytest.mark.anyio

TOKEN = {"authorization": "Bearer sesame"}


@pytest.fixture
async def post():
    app = make_app(ItemChecks(Registry([ExactChecker(), Broken()])), "sesame")
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://verifier") as client:

        async def call(*items, headers=TOKEN, **more):
            return await client.post("/v1/check", json={"items": items, **more}, headers=headers)

        yield call


async def test_answers_in_the_order_of_the_items(post):
    items = [{"task": "exact", "answer": "42", "completion": text} for text in ["42", "43", "<think>"]]
    answer = await post(*items, {"task": "broken"})
    results = answer.json()["results"]
    assert answer.status_code == 200
    assert [(r["label"], r["status"]) for r in results] == [
        (True, "ok"),
        (False, "wrong"),
        (False, "truncated"),
        (None, "error"),
    ]
    assert (results[0]["method"], results[0]["extracted"]) == ("text", "42")


async def test_gold_checks_ignore_the_completion(post):
    items = [{"task": "exact", "answer": "42", "completion": "43", "gold": True}, {"task": "exact", "gold": True}]
    assert [r["label"] for r in (await post(*items)).json()["results"]] == [True, False]


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer guess"}, {"authorization": "sesame"}])
async def test_nothing_is_judged_without_the_token(post, headers):
    assert (await post({"task": "exact", "answer": "42"}, headers=headers)).status_code == 401


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ({"task": "chess"}, "task must name a checker"),
        ({"task": "broken", "gold": True, "task_data": {"entry": 1}}, "lacks a family"),
        ({"answer": "42"}, "Field required"),
        ({"task": "exact", "task_data": [1]}, "dict"),
        ({"task": "exact", "gold_answer": "42"}, "Extra inputs"),
    ],
)
async def test_what_cannot_be_judged_is_refused_in_words(post, item, why):
    answer = await post(item)
    assert answer.status_code == 422
    assert why in answer.text


async def test_a_call_has_so_many_items_at_most(post):
    assert (await post(*[{"task": "exact"}] * 1025)).status_code == 422
