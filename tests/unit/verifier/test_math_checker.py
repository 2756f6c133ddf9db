from pathlib import Path

import pytest

from pacs.wire.groups import Label
from services.verifier.checkers.math import MathChecker

pytestmark = pytest.mark.anyio


def exists(pid):
    return Path(f"/proc/{pid}").exists()


def mapped_files(pid):
    return Path(f"/proc/{pid}/maps").read_text()


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def checker():
    checker = MathChecker(workers=1)
    yield checker
    pids = checker.pids
    await checker.close()
    assert not any(exists(pid) for pid in pids)


@pytest.mark.parametrize(
    ("gold", "completion", "status", "method"),
    [
        ("42", r"\boxed{42}", "ok", "text"),
        ("42", r"\boxed{42.0}", "ok", "rational"),
        ("42", r"\boxed{43}", "wrong", "rational"),
        ("42", "it is 42", "no_answer", "extraction"),
        ("42", r"<think>\boxed{42}", "truncated", "extraction"),
        ("35", r"\boxed{35 \text{ cm}}", "ok", "structure"),
        (r"\frac{\sqrt{3}}{3}", r"\boxed{\frac{1}{\sqrt{3}}}", "ok", "sympy"),
        (r"(x+1)^2", r"\boxed{x^2+2x+2}", "wrong", "structure"),
        (r"\frac{1}{3}", r"\boxed{" + "(" * 200 + "x" + ")" * 200 + "}", "too_complex", "guard"),
        ("42", r"\boxed{" + "9" * 100_000 + "}", "too_complex", "guard"),
    ],
)
async def test_decides_with_the_cheapest_method_that_can(checker, gold, completion, status, method):
    judgement = await checker.check(completion, gold, {})
    assert (judgement.status, judgement.method) == (status, method)
    assert judgement.label is (Label.CORRECT if status == "ok" else Label.WRONG)
    assert len(judgement.extracted) <= 500


@pytest.mark.parametrize(
    "answer", ["9^{9^{9^9}}", r"2^{2^{2^{16}}}", "((999!)!)!", r"\int_0^1 x dx", r"\binom{10^9}{10^8}"]
)
async def test_what_is_too_large_to_compute_is_wrong_before_it_is_computed(checker, answer):
    judgement = await checker.check(rf"\boxed{{{answer}}}", "42", {})
    assert (judgement.label, judgement.status, judgement.method) == (Label.WRONG, "too_complex", "guard")


async def test_an_integral_is_allowed_where_the_gold_has_one(checker):
    assert (await checker.check(r"\boxed{\int_0^1 2x dx}", r"\int_0^1 x dx", {})).status == "wrong"


async def test_a_gold_that_is_too_complex_is_nobodys_wrong_answer(checker):
    judgement = await checker.check(r"\boxed{x}", "(" * 60 + "x" + ")" * 60, {})
    assert (judgement.status, judgement.label) == ("error", Label.INVALID)


@pytest.mark.parametrize("gold", ["42", "1,234", r"\frac{\pi}{2}", r"\text{Yes}", "A", r"x^2+1", r"(1, 2)", "x<3"])
async def test_accepts_golds_that_equal_themselves(checker, gold):
    assert (await checker.check_gold(gold, {})).status == "ok"


@pytest.mark.parametrize("gold", ["", " ", "}{", r"\boxed{1} and \boxed{2}", "(" * 60 + "1" + ")" * 60, "1\\"])
async def test_refuses_golds_that_do_not(checker, gold):
    assert (await checker.check_gold(gold, {})).label is not Label.CORRECT


async def test_a_gold_is_compared_by_the_worker_where_only_text_would_match(checker):
    assert (await checker.check_gold("x+1", {})).method == "sympy"


async def test_the_worker_loads_no_torch(checker):
    await checker.check(r"\boxed{1+x}", "x+1", {})
    (pid,) = checker.pids
    loaded = mapped_files(pid)
    assert "libtorch" not in loaded
    assert "python" in loaded
