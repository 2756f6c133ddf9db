import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from pacs.pb import groups_pb2 as pb
from pacs.testing import make_group, make_labeled_group, make_prompt
from pacs.wire.groups import (
    Label,
    LabeledGroup,
    VersionSpan,
    decode_group,
    decode_labeled_group,
    decode_prompt,
    encode_group,
    encode_labeled_group,
    encode_prompt,
)

TOKENS = st.lists(st.integers(0, 2**31 - 1), max_size=5)


def same_prompt(a, b):
    plain = [f for f in a.__dataclass_fields__ if f != "token_ids"]
    return all(getattr(a, f) == getattr(b, f) for f in plain) and np.array_equal(a.token_ids, b.token_ids)


@given(
    sequence=st.integers(0, 2**62),
    tokens=TOKENS,
    text=st.text(),
    temperature=st.floats(0, 2, width=32),
    data=st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists)),
)
def test_a_prompt_comes_back_as_it_went(sequence, tokens, text, temperature, data):
    ids = np.array(tokens, dtype=np.int32)
    sent = make_prompt(sequence, token_ids=ids, text=text, temperature=temperature, task_data=data, admitted_at=1.5)
    assert same_prompt(decode_prompt(encode_prompt(sent)), sent)


@given(responses=st.lists(TOKENS, min_size=1, max_size=4), version=st.integers(0, 9))
def test_a_group_comes_back_as_it_went(responses, version):
    sent = make_group(3, responses, version, "length")
    got = decode_group(encode_group(sent))
    assert same_prompt(got.prompt, sent.prompt)
    for a, b in zip(got.completions, sent.completions, strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        assert np.array_equal(a.logprobs, b.logprobs)
        assert (a.sample_id, a.versions, a.finish_reason, a.text) == (b.sample_id, b.versions, b.finish_reason, b.text)


def test_logprobs_travel_bit_by_bit_nan_and_infinity_included():
    group = make_group(0, [[1, 2, 3]])
    odd = np.array([-np.inf, np.nan, -1e-42], dtype=np.float32)
    object.__setattr__(group.completions[0], "logprobs", odd)
    assert decode_group(encode_group(group)).completions[0].logprobs.tobytes() == odd.tobytes()


def test_labels_are_joined_by_sample_id_whatever_their_order():
    sent = make_labeled_group(5, (1, 0, -1))
    shuffled = LabeledGroup(sent.group, dict(reversed(sent.verdicts.items())))
    got = decode_labeled_group(encode_labeled_group(shuffled))
    assert got.labels == (Label.CORRECT, Label.WRONG, Label.INVALID)


def test_every_completion_needs_a_verdict_and_no_other():
    group = make_group(5, [[1], [2]])
    verdicts = dict(make_labeled_group(5, (1, 0)).verdicts)
    other = make_labeled_group(6, (1, 0)).verdicts
    for wrong in ({}, {"5/0": verdicts["5/0"]}, {**verdicts, "6/0": other["6/0"]}):
        with pytest.raises(ValueError, match="exactly one verdict"):
            LabeledGroup(group, wrong)


def test_the_versions_are_those_that_sampled_a_token():
    group = make_group(0, [[1, 2, 3], [4]], policy_version=7)
    assert group.versions == {7}
    object.__setattr__(
        group.completions[0], "versions", (VersionSpan(2, 0, 0), VersionSpan(5, 0, 1), VersionSpan(7, 1, 3))
    )
    assert group.versions == {5, 7}, "a span without tokens does not count"
    assert make_group(0, [[], []], policy_version=4).versions == {4}


BROKEN = {
    "garbage": b"\xff\xff\xff not a message",
    "cut off": encode_labeled_group(make_labeled_group())[:-3],
    "token bytes that are no int32": pb.LabeledGroup(
        group=pb.Group(prompt=pb.Prompt(token_ids=b"123"))
    ).SerializeToString(),
    "task data that is no JSON": pb.LabeledGroup(
        group=pb.Group(prompt=pb.Prompt(task_data_json="{"))
    ).SerializeToString(),
    "a verdict without a label": pb.LabeledGroup(
        group=pb.Group(completions=[pb.Completion(sample_id="0/0")]), verdicts=[pb.Verdict(sample_id="0/0")]
    ).SerializeToString(),
    "a label nobody knows": pb.LabeledGroup(
        group=pb.Group(completions=[pb.Completion(sample_id="0/0")]), verdicts=[pb.Verdict(sample_id="0/0", label=9)]
    ).SerializeToString(),
    "a completion without a verdict": pb.LabeledGroup(
        group=pb.Group(completions=[pb.Completion(sample_id="0/0")])
    ).SerializeToString(),
}


@pytest.mark.parametrize("payload", BROKEN.values(), ids=BROKEN)
def test_bytes_that_are_no_labelled_group_are_told_apart_from_faults(payload):
    with pytest.raises(DecodeError):
        decode_labeled_group(payload)


def test_bytes_that_are_no_group_or_prompt_are_told_apart_too():
    with pytest.raises(DecodeError):
        decode_group(pb.Group(prompt=pb.Prompt(token_ids=b"12345")).SerializeToString())
    with pytest.raises(DecodeError):
        decode_prompt(pb.Prompt(task_data_json="nonsense").SerializeToString())
