import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.verifier.checkers.guard import is_too_complex, is_too_hard_to_parse
from services.verifier.checkers.magnitude import MAX_VALUE_DIGITS, digits_at_most

TOO_LARGE = [
    "9^{9^{9^9}}",
    "9 ^ 9 ^ 9 ^ 9",
    "9**9**9",
    "((((9^9)^9)^9)^9)^9",
    r"2^{2^{2^{16}}}",
    r"2^{-9^{9^9}}",
    r"{\frac12}^{9^{9}}",
    r"x^{99999999}",
    r"e^{e^{e^{e}}}",
    "((100)!)!",
    "5!!!!",
    "10000!",
    r"\binom{1000000}{500000}",
    r"\sqrt[3]{2^{19999}+1}",
]
HONEST = [
    "2004!",
    r"\frac{2^{2005}+1}{3 \cdot 2^{2006}}",
    "5^{5^5}",
    "10^{-20}",
    "x^{2023}",
    r"x^{x^x}",
    r"\binom{10^9}{2}",
]


@pytest.mark.parametrize("text", ["(" * 51 + "x" + ")" * 51, "{" * 60, "9" * 501, "x" * 2001, *TOO_LARGE])
def test_refuses_what_chokes_a_parser(text):
    assert is_too_complex(text)


@pytest.mark.parametrize(
    "text", ["", "(" * 50 + ")" * 50, "()" * 200, "9" * 500, ")" * 100, r"\frac{1}{2}", "^^^!!", *HONEST]
)
def test_lets_honest_answers_pass(text):
    assert not is_too_complex(text)


@pytest.mark.parametrize(
    "text",
    [
        "1+" * 200 + "1",
        r"\sin(" * 21 + "1" + ")" * 21,
        "|" * 40,
        r"\int_0^1 x dx",
        r"\sum_{k} k",
        r"\det A",
        r"\pm" * 20,
    ],
)
def test_refuses_to_parse_what_takes_seconds(text):
    assert is_too_hard_to_parse(text, "42")
    assert not is_too_hard_to_parse(text, text)


@given(st.integers(2, 40), st.integers(2, 400))
def test_the_estimate_is_an_upper_bound(base, exponent):
    assert digits_at_most(f"{base}^{{{exponent}}}") > len(str(base**exponent)) - 1.01


@given(st.text("0123456789^!{}()+-*/\\ binomfracxe.", max_size=60))
def test_no_text_makes_the_estimate_raise(text):
    assert digits_at_most(text) >= 0


def test_a_chain_of_two_thousand_powers_is_estimated_at_once():
    started = time.process_time()
    assert digits_at_most("9^" * 1000) > MAX_VALUE_DIGITS
    assert time.process_time() - started < 2
