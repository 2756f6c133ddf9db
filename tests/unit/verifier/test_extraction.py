import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.verifier.checkers.extraction import extract_boxed, extract_marked_or_whole, has_marked_answer

pieces = st.sampled_from(
    [r"\boxed", r"\fbox", "{", "}", "\\", r"\{", r"\}", " ", "\n", "<think>", "</think>", "<answer>", "</answer>", "42"]
)
hostile = st.lists(pieces | st.text(max_size=5), max_size=40).map("".join)


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (r"\boxed{42}", "42"),
        (r"\fbox{42}.", "42"),
        (r"\boxed {42}", "42"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"first \boxed{41}, no, \boxed{42}", "42"),
        (r"\boxed{41} or \boxed{42}", "41, 42"),
        (r"$\boxed{1}$, $\boxed{2}$ and \fbox{3}", "1, 2, 3"),
        (r"\boxed{42}" + "\n" + r"\boxed{42}", "42"),
        (r"\boxed{41}. \boxed{42}", "42"),
        (r"a line\\\boxed{42}", "42"),
        (r"\boxed{\boxed{42}}", "42"),
        (r"write \boxed{} . So \fbox{42}", "42"),
        (r"with \boxed . My answer: \boxed{42}", "42"),
        (r"<think>maybe \boxed{41}</think> \boxed{42}", "42"),
        (r"reasoning whose opening is in the prompt</think> \boxed{42}", "42"),
    ],
)
def test_takes_the_last_box_outside_the_reasoning(completion, answer):
    assert extract_boxed(completion).text == answer
    assert extract_boxed(completion).status == "ok"
    assert has_marked_answer(completion)


@pytest.mark.parametrize(
    ("completion", "status"),
    [
        ("", "no_answer"),
        ("the answer is 42", "no_answer"),
        (r"\boxed 42", "no_answer"),
        (r"\boxed{42}, or rather \boxed{ }", "no_answer"),
        (r"\boxed{42}, or rather \boxed{43", "no_answer"),
        (r"\boxed{42\}", "no_answer"),
        (r"<think>so \boxed{42}</think> I am not sure.", "no_answer"),
        (r"<think>so \boxed{42}", "truncated"),
        (r"<think>a</think> \boxed{42} <think>once more", "truncated"),
    ],
)
def test_an_answer_that_is_not_finished_is_none(completion, status):
    assert extract_boxed(completion).status == status
    assert extract_boxed(completion).text == ""


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (" 1 2\n3 4 ", "1 2\n3 4"),
        ("<answer> yes </answer> thanks", "yes"),
        ("<answer>no</answer><answer>yes</answer>", "yes"),
        (r"<answer>yes</answer> \boxed{no}", "yes"),
        (r"so \boxed{yes}", "yes"),
        ("<answer>yes", "<answer>yes"),
    ],
)
def test_takes_the_element_then_the_box_then_the_whole_text(completion, answer):
    assert extract_marked_or_whole(completion).text == answer


def test_a_box_that_never_closes_does_not_make_the_whole_text_an_answer():
    assert extract_marked_or_whole(r"so \boxed{yes").status == "no_answer"


@pytest.mark.parametrize("text", ["plain", r"\boxed{", "<answer>", "<think></answer>", r"<think> \boxed{1}"])
def test_what_was_cut_off_carries_no_marked_answer(text):
    assert not has_marked_answer(text)


@given(hostile)
def test_never_raises_and_an_answer_is_never_blank(text):
    for extract in (extract_boxed, extract_marked_or_whole):
        found = extract(text)
        assert (found.status == "ok") == bool(found.text)
        assert found.text == found.text.strip()
    has_marked_answer(text)


@given(hostile, st.text(" \n\t", max_size=5), st.text(" \n\t", max_size=5), st.integers(-99, 99))
def test_whitespace_around_the_box_changes_nothing(before, left, right, number):
    box = rf"\boxed{{{left}{number}{right}}}"
    assert extract_boxed(before + box) == extract_boxed(before + left + rf"\boxed{{{number}}}" + right)


@pytest.mark.parametrize(
    "unit", [r"\boxed{", "{", r"\boxed ", r"\fbox \boxed ", r"\boxed{1},", "<answer>", "\\", "<think>", r"\boxed{}"]
)
def test_a_hostile_megabyte_costs_no_more_than_reading_it(unit):
    text = unit * (1_000_000 // len(unit))
    started = time.process_time()
    extract_boxed(text)
    extract_marked_or_whole(text)
    has_marked_answer(text)
    # Quadratic work on a megabyte takes minutes; a loaded machine reads it in a fraction of this.
    assert time.process_time() - started < 5
