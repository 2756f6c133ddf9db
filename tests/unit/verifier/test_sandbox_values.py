import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.verifier.sandbox.inside.wire import decode, encode
from services.verifier.sandbox.values import matches

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
KEYS = st.integers() | st.text() | st.booleans() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    SCALARS | st.frozensets(KEYS).map(set),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(KEYS, inner),
    max_leaves=20,
)


def refuse(value, *_):
    raise TypeError(value)


def sent(value):
    return json.loads(json.dumps(encode(value, refuse)))


@given(VALUES)
def test_a_value_comes_back_as_it_went(value):
    back = decode(sent(value), refuse)
    assert back == value
    assert type(back) is type(value)


@given(VALUES)
def test_a_value_matches_itself(value):
    assert matches(sent(value), value)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ((1, 2), [1, 2]),
        ([1, 2], (1, 2)),
        (2.0, 2),
        (2, 2.0),
        (0.1 + 0.2, 0.3),
        ({"a": [1, {2}]}, {"a": [1, {2}]}),
        ({1, 2}, frozenset({2, 1})),
        (10**40, 10**40),
    ],
)
def test_what_is_as_good(got, expected):
    assert matches(sent(got), expected)


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (True, 1),
        (1, True),
        (False, 0),
        ("4", 4),
        (4, "4"),
        (None, False),
        (float("nan"), float("nan")),
        (50000000000000001, 50000000000000000),
        (0.3001, 0.3),
        ([1, 2], [1, 2, 3]),
        ([1, 2, 3], [1, 2]),
        ([1, 2], [2, 1]),
        ([True], [1]),
        ({1: "a"}, {True: "a"}),
        ({True}, {1}),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"a": 1}),
        ({1}, [1]),
        ("ab", ["a", "b"]),
        ([], None),
        (10**40 + 1, 10**40),
        (float("inf"), 10**400),
    ],
)
def test_what_is_not(got, expected):
    assert not matches(sent(got), expected)


@pytest.mark.parametrize(
    "wire",
    [
        {"o": 1},
        {"i": "zz"},
        {"i": 4},
        {"i": "f" * 20001},
        {"f": "not"},
        {"f": 4.0},
        {"t": 4},
        {"c": ["0x0"]},
        {"b": "x"},
        {"unknown": 4},
        {},
        {"i": "4", "f": "4"},
        4.0,
        2**60,
        {"d": [[1]]},
        {"d": [[[1], 2]]},
        {"d": {"1": 2}},
        {"s": [[1]]},
        {"s": 4},
    ],
)
@pytest.mark.parametrize("expected", [4, 4.0, [4], {1: 2}, {1}, "4", None, (1, 2), 4j, b"4"])
def test_what_is_not_on_the_list_matches_nothing(wire, expected):
    assert not matches(wire, expected)


def test_a_pair_that_comes_twice_does_not_stand_for_another():
    assert not matches({"d": [["a", 1], ["a", 1]]}, {"a": 1, "b": 1})
    assert not matches({"s": ["a", "a"]}, {"a", "b"})


def test_numbers_chosen_to_collide_cost_nothing():
    colliding = [hex(k * (2**61 - 1)) for k in range(1, 40_000)]
    started = time.process_time()
    assert not matches({"d": [[{"i": number}, 0] for number in colliding]}, {4: 0})
    assert not matches({"d": [[{"i": number}, 0] for number in colliding]}, dict.fromkeys(range(40_000), 0))
    assert not matches({"s": [{"i": number} for number in colliding]}, {4})
    assert time.process_time() - started < 9.0  # CPU time; a table that collides took 18 s


def test_a_deep_value_matches_nothing():
    wire = expected = 4
    for _ in range(5000):
        wire, expected = [wire], [expected]
    assert not matches(wire, expected)
    deep_key = "x"
    for _ in range(5000):
        deep_key = {"t": [deep_key]}
    assert not matches(deep_key, "x")
    assert not matches({"s": [deep_key]}, {"x"})
