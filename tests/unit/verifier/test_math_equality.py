"""Pairs of gold and answer, each with what a careful reader says of them."""

import pytest

from services.verifier.checkers.math import MathChecker

pytestmark = pytest.mark.anyio

SAME = [
    # numbers
    (r"\frac{1}{2}", "0.5"),
    ("10,000", "10000"),
    ("120,150", "120, 150"),
    ("1{,}000{,}000", "10^6"),
    ("100", "1e2"),
    (r"\$18.90", "18.9"),
    ("1.5", r"1\frac12"),
    ("50", r"50\%"),
    ("4.667", r"\frac{14}{3}"),
    ("1.41421", r"\sqrt{2}"),
    # one value, several forms
    (r"2\sqrt{3}", r"\sqrt{12}"),
    (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt2}"),
    ("0", r"\sin(\pi)"),
    (r"e^{i\pi}", "-1"),
    ("3+4i", "4i+3"),
    (r"\log_2 8", "3"),
    ("7!", "5040"),
    (r"\sin 30^\circ", r"\frac12"),
    (r"90^\circ", r"\frac{\pi}{2}"),
    # expressions
    (r"\sqrt{x^2}", "|x|"),
    (r"2^n", r"2\cdot 2^{n-1}"),
    (r"(-1)^n", r"\cos(n\pi)"),
    (r"\frac{x^2-1}{x-1}", "x+1"),
    ("1", r"\sin^2 x+\cos^2 x"),
    ("f(x)=x^2", "x^2"),
    ("E_{1}", "E_1"),
    # equations
    ("y=2x+1", "y-2x=1"),
    (r"y = \frac{1}{2}x", "x - 2y = 0"),
    (r"\frac{y}{x}=2", "y=2x"),
    # lists, sets, tuples, matrices
    (r"\{1,2\}", "2,1"),
    (r"2 \text{ and } 3", "2,3"),
    (r"k \in \{1,2\}", "1,2"),
    (r"1\pm\sqrt{2}", r"1+\sqrt{2},1-\sqrt{2}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"),
    # intervals and inequalities
    (r"(-\infty,2)\cup(3,\infty)", r"(3,\infty)\cup(-\infty,2)"),
    (r"(-\infty,2)\cup(3,\infty)", r"x<2 \text{ or } x>3"),
    (r"x\ge 3", r"[3,\infty)"),
    # words, units, ratios
    (r"\text{Monday}", "monday"),
    ("B", r"\textbf{(B)}"),
    ("12", r"12\text{ apples}"),
    (r"12\text{ inches}", r"1 \text{ foot}"),
    ("3:1", "6:2"),
]

DIFFERENT = [
    ("10,000", "0,10"),
    ("1,2,3,4", "1234"),
    ("5", r"50\%"),
    ("0.3", r"\frac13"),
    (r"\frac{14}{3}", "4.667"),
    ("0", "10^{-50}"),
    ("-1", r"\infty"),
    (r"-\infty", r"\infty"),
    ("4", "four"),
    ("|x|", "x"),
    (r"\sqrt{x^2}", "x"),
    ("2t", "2"),
    (r"\cos(n \pi)", r"(-1)^n"),
    (r"\lfloor \frac{n}{2}\rfloor", r"\frac{n}{2}"),
    ("n!", "n"),
    ("3+4i", "3-4i"),
    (r"\frac{\pi}{2}", "1.5707963"),
    ("x=1", "y=1"),
    ("y=2x+1", "y=2x+2"),
    ("x=2y", "y=2x"),
    ("x^2+y^2=1", "x^2+y^2=2"),
    ("(1,2)", "(1,2,3)"),
    (r"\{1,2\}", "(1,2)"),
    ("2,1", "(1,2)"),
    ("2,3,5", "5,3"),
    (r"\pm\sqrt{2}", r"\sqrt{2}"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix}1&3\\2&4\end{pmatrix}"),
    (r"x\ge 3", "x>3"),
    (r"x<3", "y<3"),
    (r"\text{Monday}", r"\text{Tuesday}"),
    (r"12\text{ cm}^2", r"12 \text{ cm}"),
    ("3:1", "1:3"),
]


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
async def checker():
    checker = MathChecker(workers=1)
    yield checker
    await checker.close()


@pytest.mark.parametrize(("gold", "answer"), SAME)
async def test_the_same_answer_is_right(checker, gold, answer):
    judgement = await checker.check(rf"\boxed{{{answer}}}", gold, {})
    assert judgement.status == "ok", judgement


@pytest.mark.parametrize(("gold", "answer"), DIFFERENT)
async def test_another_answer_is_wrong(checker, gold, answer):
    judgement = await checker.check(rf"\boxed{{{answer}}}", gold, {})
    assert judgement.status == "wrong", judgement


async def test_shadow_mode_carries_what_the_reference_says_and_changes_no_label(caplog):
    checker = MathChecker(workers=1, shadow=True)
    caplog.set_level("INFO")
    try:
        strict = await checker.check(r"\boxed{1,2}", "(1,2)", {})
        agreed = await checker.check(r"\boxed{3}", "3", {})
    finally:
        await checker.close()
    assert (strict.status, strict.reference) == ("wrong", "ok")
    assert (agreed.status, agreed.reference) == ("ok", "ok")
    assert caplog.text.count("the reference says") == 1
