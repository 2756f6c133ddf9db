import pytest

from services.verifier.checkers.answer import read_answer
from services.verifier.checkers.relation import solved_relation


@pytest.mark.parametrize(
    ("text", "variable", "interval"),
    [
        ("x<3", "x", r"(-\infty,3)"),
        (r"3 \le x", "x", r"[3,\infty)"),
        (r"1 < t \le 2", "t", "(1,2]"),
        (r"2 > x \ge \frac{1}{2}", "x", r"[\frac{1}{2},2)"),
        (r"\theta >= \pi", r"\theta", r"[\pi,\infty)"),
    ],
)
def test_reads_inequalities_that_are_solved(text, variable, interval):
    (found,) = solved_relation(text)
    assert found.variable == variable
    assert f"{found.brackets[0]}{found.low},{found.high}{found.brackets[1]}" == interval


def test_what_a_variable_is_not_leaves_two_half_lines():
    assert [(i.low, i.high) for i in solved_relation(r"x \neq 3")] == [(r"-\infty", "3"), ("3", r"\infty")]


@pytest.mark.parametrize("text", ["x", "x=3", "x+1<3", "x<x^2", "1<x>2", "1<2<x<3", "x<", "<3", "x<3, y<4", "2<3"])
def test_leaves_everything_else_alone(text):
    assert solved_relation(text) is None


@pytest.mark.parametrize(
    ("text", "kind", "items"),
    [
        ("1, 2, 3", "list", 3),
        (r"1 \text{ and } 2", "list", 2),
        (r"9 \text{ chickens and } 10 \text{ rabbits}", "list", 2),
        (r"\{1, 2\}", "set", 2),
        ("(1, 2)", "tuple", 2),
        ("[0, 1)", "tuple", 2),
        ("(1, 2), (3, 4)", "list", 2),
        (r"x>2 \text{ or } x<-2", "union", 2),
        (r"(0,1) \cup (2,3)", "union", 2),
        (r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}", "matrix", 4),
        ("10,000", "scalar", 0),
        ("f(1, 2)", "scalar", 0),
        (r"\{x \mid x > 2\}", "scalar", 0),
        ("(x+1)(x-2)", "scalar", 0),
        ("1), (2", "scalar", 0),
    ],
)
def test_tells_kinds_of_answers_apart(text, kind, items):
    answer = read_answer(text)
    assert (answer.kind, len(answer.items)) == (kind, items)


def test_a_name_is_taken_off():
    answer = read_answer("f(x) = x^2")
    assert (answer.name, answer.text) == ("f(x)", "x^2")
    assert read_answer("3x = 6").name == ""
