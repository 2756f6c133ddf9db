import pytest

from pacs.errors import BadInput
from pacs.wire.groups import Label
from services.verifier.checkers.choice import ChoiceChecker

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("completion", "status"),
    [
        (r"\boxed{B}", "ok"),
        (r"\boxed{b}", "ok"),
        (r"\boxed{(B)}", "ok"),
        (r"\boxed{\textbf{(B)}}", "ok"),
        (r"\boxed{\text{B. }42}", "ok"),
        (r"\boxed{B) 42}", "ok"),
        ("<answer>B</answer>", "ok"),
        ("<think>A?</think> The answer is (B).", "ok"),
        ("Answer: **B**", "ok"),
        ("B", "ok"),
        (r"\boxed{A}", "wrong"),
        (r"\boxed{A} or \boxed{B}", "no_answer"),
        (r"\boxed{A, B}", "no_answer"),
        (r"\boxed{42}", "no_answer"),
        (r"\boxed{Both}", "no_answer"),
        ("The answer is A. No, the answer is B.", "no_answer"),
        ("the answer is Both", "no_answer"),
        ("", "no_answer"),
        ("<think>B", "truncated"),
    ],
)
async def test_takes_the_letter_and_nothing_but_it(completion, status):
    judgement = await ChoiceChecker().check(completion, "(B)", {})
    assert judgement.status == status, judgement
    assert judgement.label is (Label.CORRECT if status == "ok" else Label.WRONG)


@pytest.mark.parametrize("gold", ["B", "b", "(B)", r"\text{B}", r"\textbf{(B)}"])
async def test_accepts_golds_that_are_letters(gold):
    assert (await ChoiceChecker().check_gold(gold, {})).status == "ok"


@pytest.mark.parametrize("gold", ["", "BC", "42", "B and C"])
async def test_refuses_golds_that_are_not(gold):
    with pytest.raises(BadInput, match="one letter"):
        await ChoiceChecker().check_gold(gold, {})
