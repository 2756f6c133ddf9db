import pytest

from pacs.wire.groups import Label
from services.verifier.checkers.exact import ExactChecker

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("completion", "status"),
    [
        (" left right\n", "ok"),
        (r"so \boxed{left right}", "ok"),
        ("<think>hm</think><answer>left right</answer>", "ok"),
        ("Left right", "wrong"),
        ("left right, I think", "wrong"),
        ("", "no_answer"),
        (r"\boxed{}", "no_answer"),
        ("<think>left right", "truncated"),
    ],
)
async def test_only_the_golds_own_text_is_right(completion, status):
    judgement = await ExactChecker().check(completion, " left right", {})
    assert judgement.status == status
    assert judgement.label is (Label.CORRECT if status == "ok" else Label.WRONG)


@pytest.mark.parametrize(("gold", "label"), [("x", Label.CORRECT), ("", Label.WRONG), (" \n", Label.WRONG)])
async def test_a_blank_gold_cannot_be_met(gold, label):
    assert (await ExactChecker().check_gold(gold, {})).label is label
