"""Orders between ranks: what goes in comes out, and only bytes that mean what they say travel."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pacs.testing import make_labeled_group
from services.learner.batches import make_batch
from services.learner.orders import Order, batch_of, batch_order, decode_order, encode_order, payload_bytes

DTYPES = ("<f8", "<f4", "<i8", "<i4", "|b1", "|u1")
some_arrays = st.dictionaries(
    st.text(min_size=1, max_size=8),
    st.sampled_from(DTYPES).flatmap(lambda d: arrays(d, st.lists(st.integers(0, 4), max_size=3).map(tuple))),
    max_size=4,
)


def travel(order):
    header, payload = encode_order(order)
    assert payload_bytes(header) == len(payload)
    return decode_order(header, payload)


@given(some_arrays)
def test_arrays_arrive_bit_for_bit(contents):
    arrived = travel(Order("backward", {"names": ["a", "b"]}, contents))
    assert arrived.name == "backward"
    assert arrived.arguments == {"names": ["a", "b"]}
    assert arrived.arrays.keys() == contents.keys()
    for name, array in contents.items():
        assert arrived.arrays[name].dtype == array.dtype
        assert arrived.arrays[name].shape == array.shape
        assert arrived.arrays[name].tobytes() == array.tobytes()  # NaN's bits too


def test_arrays_that_arrive_may_be_written_to():
    arrived = travel(Order("x", arrays={"a": np.zeros(3), "b": np.arange(3)}))
    arrived.arrays["a"][:] = 1
    assert arrived.arrays["b"].tolist() == [0, 1, 2]


def test_objects_do_not_travel():
    with pytest.raises(ValueError, match=r"got others for \['evil'\]"):
        encode_order(Order("x", arrays={"fine": np.zeros(1), "evil": np.array([object()])}))


def test_an_order_is_json_and_bytes():
    header, payload = encode_order(Order("step", arrays={"a": np.array([1, 2], dtype="<i4")}))
    assert json.loads(header) == {"name": "step", "arguments": {}, "arrays": [["a", "<i4", [2]]]}
    assert payload == b"\1\0\0\0\2\0\0\0"


def test_a_batch_arrives_whole():
    batch = make_batch([make_labeled_group(0, [1, 0, -1]), make_labeled_group(1, [0, 0, 1])])
    arrived = batch_of(travel(batch_order(batch)))
    for entry in dataclasses.fields(batch):
        sent, received = getattr(batch, entry.name), getattr(arrived, entry.name)
        if isinstance(sent, tuple):
            assert len(sent) == len(received)
            assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(sent, received, strict=True))
        else:
            assert np.array_equal(sent, received)


def test_an_empty_response_does_not_shift_the_others():
    batch = make_batch([make_labeled_group(0, [1, 0], responses=[[], [7, 8]])])
    arrived = batch_of(travel(batch_order(batch)))
    assert [part.tolist() for part in arrived.engine_logprobs_B] == [[], [-0.5, -1.0]]
