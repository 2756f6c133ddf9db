import asyncio

import pytest

from pacs.errors import BadInput
from pacs.wire.groups import Label
from services.verifier.checkers.interface import judged
from services.verifier.judging import judge

pytestmark = pytest.mark.anyio


async def test_passes_a_judgement_through():
    async def check():
        return judged(0.0, "ok", "text", "42")

    assert (await judge(check, "sample 0/0")).extracted == "42"


async def test_a_failing_checker_has_not_judged(caplog):
    async def check():
        raise KeyError("broken")

    judgement = await judge(check, "sample 3/1")
    assert (judgement.label, judgement.status) == (Label.INVALID, "error")
    assert "sample 3/1" in caplog.text


async def test_a_checker_that_fails_before_it_waits_or_returns_something_else_has_not_judged():
    async def check():
        return True

    def not_a_coroutine():
        raise RuntimeError("broken")

    assert (await judge(check, "sample 0/0")).status == "error"
    assert (await judge(not_a_coroutine, "sample 0/0")).status == "error"


async def test_a_checker_that_never_answers_times_out(caplog):
    judgement = await judge(asyncio.Event().wait, "sample 4/2", seconds=0.01)
    assert (judgement.label, judgement.status) == (Label.INVALID, "timeout")
    assert "sample 4/2" in caplog.text


async def test_a_bad_row_is_the_callers_to_handle():
    async def check():
        raise BadInput("no family")

    with pytest.raises(BadInput, match="no family"):
        await judge(check, "sample 0/0")
