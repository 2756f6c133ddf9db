import pytest

from services.verifier.checkers.guard import is_too_complex


@pytest.mark.parametrize("text", ["(" * 51 + "x" + ")" * 51, "{" * 60, "9" * 501, "x" * 2001])
def test_refuses_what_chokes_a_parser(text):
    assert is_too_complex(text)


@pytest.mark.parametrize("text", ["", "(" * 50 + ")" * 50, "()" * 200, "9" * 500, ")" * 100, r"\frac{1}{2}"])
def test_lets_honest_answers_pass(text):
    assert not is_too_complex(text)
