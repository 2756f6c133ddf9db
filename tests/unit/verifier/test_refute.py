from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.verifier.checkers.refute import evaluates, surely_differ

small = st.integers(1, 30)


def over(a, b):
    return (rf"\frac{{{a[0]}}}{{{b[0]}}}", a[1] / b[1]) if b[1] else a


expressions = st.recursive(
    small.map(lambda n: (str(n), Fraction(n))),
    lambda inner: (
        st.tuples(inner, inner).map(lambda p: (f"({p[0][0]}+{p[1][0]})", p[0][1] + p[1][1]))
        | st.tuples(inner, inner).map(lambda p: (f"({p[0][0]}-{p[1][0]})", p[0][1] - p[1][1]))
        | st.tuples(inner, inner).map(lambda p: (rf"{p[0][0]} \cdot {p[1][0]}", p[0][1] * p[1][1]))
        | st.tuples(inner, inner).map(lambda p: over(*p))
    ),
    max_leaves=6,
)


@given(expressions)
def test_never_refutes_what_is_equal(expression):
    text, value = expression
    assert not surely_differ(text, f"{value.numerator}/{value.denominator}" if value >= 0 else text)
    assert not surely_differ(rf"\pi {text}", rf"{text} \pi")


@pytest.mark.parametrize(
    ("gold", "prediction"),
    [
        (r"2\sqrt{3}", r"3\sqrt{2}"),
        ("x^2+1", "y^2+1"),
        ("x^2+3x", "(x+2)x"),
        (r"\frac12", r"\frac13"),
        ("p-q", "q-p"),
        (r"\sin(x)", r"\cos(x)"),
        (r"\ln(2)", "1"),
        ("3^{10}", "14"),
    ],
)
def test_refutes_what_differs(gold, prediction):
    assert surely_differ(gold, prediction)


@pytest.mark.parametrize(
    ("gold", "prediction"),
    [
        (r"\sqrt{12}", r"2\sqrt{3}"),
        ("0", r"\sin(\pi)"),
        ("1", "10^{20}+1-10^{20}"),
        ("(x+1)^{2}", "x^{2}+2x+1"),
        ("1", r"1+10^{-18}"),
        ("x", "X"),
    ],
)
def test_leaves_open_what_may_be_equal(gold, prediction):
    assert not surely_differ(gold, prediction)


def test_a_rounded_gold_is_met_within_its_last_digit():
    assert surely_differ("4.667", r"\frac{14}{3}")
    assert not surely_differ("4.667", r"\frac{14}{3}", tolerance=0.0005)


@pytest.mark.parametrize(
    "text",
    [r"2\frac{1}{3}", "2 3", "1/2x", "f(x)", "2i", "x_1", "1,2", r"\pm 2", "x=1", "", "(1", r"\sqrt{-1}",
     r"\frac{1}{0}", "9^{9^9}", "10^{400}", r"\log 2", "|x|", "-", "x^-1", "2^3^2", r"\sin x", "5!", "½", "x" * 300],
)  # fmt: skip
def test_does_not_read_what_has_two_readings_or_none(text):
    assert not evaluates(text)


@given(st.text("0123456789.xyi+-*/^(){}\\fracsqrtpi ,=", max_size=40))
def test_no_text_makes_it_raise(text):
    evaluates(text)
