from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.verifier.checkers.rational import parse_rational, same_rational, same_text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("-42", -42),
        ("+ 42", 42),
        ("\u22125", -5),
        ("004", 4),
        (".5", Fraction(1, 2)),
        ("5.50", Fraction(11, 2)),
        ("42.", 42),
        ("$42$", 42),
        (r"\(42\)", 42),
        (r"\text{42}", 42),
        (r"$\text{42.}$", 42),
        ("1,234", 1234),
        ("1{,}234", 1234),
        (r"1\,234", 1234),
        (r"11,\! 111,\! 100", 11111100),
        ("1,234,567.5", Fraction(2469135, 2)),
        ("1/2", Fraction(1, 2)),
        ("-1/2", Fraction(-1, 2)),
        (r"\frac{1}{2}", Fraction(1, 2)),
        (r"-\dfrac{1}{2}", Fraction(-1, 2)),
        (r"\tfrac{-1}{2}", Fraction(-1, 2)),
        (r"\frac97", Fraction(9, 7)),
        (r"\frac{97}3", Fraction(97, 3)),
        (r"\frac 9 7", Fraction(9, 7)),
        ("½", Fraction(1, 2)),
        (r"2\frac{1}{3}", Fraction(7, 3)),
        ("2 1/3", Fraction(7, 3)),
        (r"6.02 \times 10^{23}", 602 * 10**21),
        (r"6.02 \cdot 10^{-2}", Fraction(301, 5000)),
        ("6.02e23", 602 * 10**21),
        ("10^{-20}", Fraction(1, 10**20)),
        ("10^3", 1000),
        (r"\$5.50", Fraction(11, 2)),
        (r"-\$5", -5),
        (r"\text{\$}5.50", Fraction(11, 2)),
    ],
)
def test_reads_rational_numbers_exactly(text, value):
    number = parse_rational(text)
    assert number is not None
    assert number.value == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1,23",
        "12,34",
        "1 2",
        "52_8",
        "2^{10}",
        "10^23",
        "35 cm",
        r"3\text{个}",
        r"\frac{1}{0}",
        "1/2/3",
        r"2\frac{4}{3}",
        r"\sqrt{2}",
        r"\pi",
        "1e9999",
        "10^{501}",
        "１２",
        "9" * 501,
        "1" + ",000" * 700,
        "--5",
        "nan",
        "inf",
    ],
)
def test_leaves_everything_else_alone(text):
    assert parse_rational(text) is None


@pytest.mark.parametrize(
    ("gold", "prediction", "same"),
    [
        ("10000", "10,000", True),
        ("2/3", r"\frac{2}{3}", True),
        ("0.5", r"\frac12", True),
        (r"28\%", "0.28", True),
        ("0.28", "28%", True),
        (r"\frac34", r"75\%", True),
        ("123456789012345678901", "123456789012345678900", False),
        ("100000000000000000000.5", "100000000000000000000.6", False),
        ("0.0000001", "0.0000002", False),
        ("10^{-20}", "10^{-21}", False),
        ("10,000", "9999", False),
        ("0.5", r"\frac{12}{23}", False),
        (r"28\%", "29%", False),
        ("50", r"50\%", True),
        ("5", r"50\%", False),
        ("100,200", "200,100", False),
        ("0.333333", r"\frac13", True),
        ("0.333", r"\frac13", True),
        ("0.3", r"\frac13", False),
        ("0.333", "0.3333", False),
        (r"\frac13", "0.333", False),
        ("42", "x", None),
        ("x", "42", None),
        (r"\sqrt4", "2", None),
    ],
)
def test_decides_what_is_certain_and_nothing_else(gold, prediction, same):
    assert same_rational(gold, prediction) is same


@given(st.fractions(), st.fractions())
def test_two_fractions_are_the_same_exactly_when_their_values_are(a, b):
    text = rf"\frac{{{b.numerator}}}{{{b.denominator}}}"
    assert same_rational(f"{a.numerator}/{a.denominator}", text) is (a == b)


@given(st.integers(-(10**30), 10**30))
def test_thousands_separators_change_no_integer(number):
    assert same_rational(str(number), f"{number:,}") is True
    assert same_rational(str(number), f"{number:,}".replace(",", "{,}")) is True


@given(st.text("0123456789.,{}\\/frac^e%$- \n", max_size=40))
def test_no_text_makes_it_raise(text):
    parse_rational(text)


@pytest.mark.parametrize(
    ("gold", "prediction"),
    [
        ("A", r"\text{A}"),
        (r"\text{甲}", "甲"),
        (r"\left(1,  2\right)", "(1, 2)"),
        (r"\dfrac{\pi}{2}", r"\frac{\pi}{2}."),
        ("$x+1$", "x+1"),
    ],
)
def test_typography_is_no_difference(gold, prediction):
    assert same_text(gold, prediction)


@pytest.mark.parametrize(
    ("gold", "prediction"),
    [("A", "B"), ("", ""), ("$$", "."), ("1,2,...", "1,2"), (r"\leftarrow", "arrow"), ("12", "1 2"), ("x" * 2001,) * 2],
)
def test_what_may_mean_something_is_a_difference(gold, prediction):
    assert not same_text(gold, prediction)
