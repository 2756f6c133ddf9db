"""The group and its parts as plain frozen values, and their bytes.

Shapes: T response tokens of one completion, G completions of a group.
Protobuf objects stay in this file: the rest of the project sees only these classes.
"""

import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from pacs.pb import groups_pb2 as pb

__all__ = [
    "Completion",
    "Group",
    "Label",
    "LabeledGroup",
    "Prompt",
    "Verdict",
    "VersionSpan",
    "decode_group",
    "decode_labeled_group",
    "decode_prompt",
    "encode_group",
    "encode_labeled_group",
    "encode_prompt",
]

TOKEN_DTYPE = np.dtype("<i4")
LOGPROB_DTYPE = np.dtype("<f4")

T = TypeVar("T")


class Label(enum.Enum):
    """The verifier's verdict on one completion."""

    WRONG = 0
    CORRECT = 1
    INVALID = -1
    """The infrastructure failed: the sample is not judged and must not be trained on."""


@dataclass(frozen=True)
class Prompt:
    """One admitted problem.

    Args:
        sequence: admission number, 0-based, unique in its run and lane.
        token_ids: int32 [tokens], chat template applied.
        text: the problem as people read it.
        task: name of the checker that judges the completions.
        task_data: what the checker needs beyond the answer; JSON-compatible.
        policy_version: version live at admission.
        admitted_at: seconds since the epoch.

    """

    sequence: int
    prompt_id: str
    token_ids: NDArray[np.int32]
    text: str
    task: str
    answer: str
    group_size: int
    max_tokens: int
    temperature: float
    task_data: Mapping[str, Any] = field(default_factory=dict)
    policy_version: int = 0
    reference_epoch: int = 0
    admitted_at: float = 0.0


@dataclass(frozen=True)
class VersionSpan:
    """Response tokens [start, end) were sampled by `policy_version`."""

    policy_version: int
    start: int
    end: int


@dataclass(frozen=True)
class Completion:
    """One sampled response.

    Args:
        sample_id: `<sequence>/<index>`; labels are joined by it, never by position.
        token_ids: int32 [T].
        logprobs: float32 [T], the engine's log-probabilities of the sampled tokens, nats.
        finish_reason: the engine's own: `stop`, `length`, …

    """

    sample_id: str
    token_ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    versions: tuple[VersionSpan, ...]
    finish_reason: str
    text: str


@dataclass(frozen=True)
class Group:
    """One prompt with its G completions."""

    prompt: Prompt
    completions: tuple[Completion, ...]

    @property
    def versions(self) -> frozenset[int]:
        """The policy versions that sampled any token of the group; the prompt's where none was sampled."""
        spans = frozenset(span.policy_version for c in self.completions for span in c.versions if span.end > span.start)
        return spans or frozenset({self.prompt.policy_version})


@dataclass(frozen=True)
class Verdict:
    """What the verifier says of one completion.

    Args:
        status: ok, wrong, no_answer, truncated, too_complex, timeout or error.
        method: how it was decided: text, rational, sympy, score, …
        seconds: time the check took.
        extracted: what was taken for the answer, for people.

    """

    sample_id: str
    label: Label
    status: str
    method: str
    seconds: float = 0.0
    extracted: str = ""


@dataclass(frozen=True)
class LabeledGroup:
    """A group with one verdict a completion, joined by sample id.

    Raises:
        ValueError: a completion without a verdict, or a verdict without a completion.

    """

    group: Group
    verdicts: Mapping[str, Verdict]

    def __post_init__(self) -> None:
        sampled = {c.sample_id for c in self.group.completions}
        if sampled != set(self.verdicts):
            raise ValueError(
                "every completion needs exactly one verdict, "
                f"got samples {sorted(sampled)} and verdicts for {sorted(self.verdicts)}"
            )

    @property
    def labels(self) -> tuple[Label, ...]:
        """One label a completion, in the order of the completions."""
        return tuple(self.verdicts[c.sample_id].label for c in self.group.completions)


_LABEL_TO_PB = {Label.WRONG: pb.LABEL_WRONG, Label.CORRECT: pb.LABEL_CORRECT, Label.INVALID: pb.LABEL_INVALID}
_LABEL_FROM_PB = {value: key for key, value in _LABEL_TO_PB.items()}


def _prompt_to_pb(prompt: Prompt) -> pb.Prompt:
    return pb.Prompt(
        sequence=prompt.sequence,
        prompt_id=prompt.prompt_id,
        token_ids=prompt.token_ids.astype(TOKEN_DTYPE).tobytes(),
        text=prompt.text,
        task=prompt.task,
        answer=prompt.answer,
        task_data_json=json.dumps(dict(prompt.task_data)) if prompt.task_data else "",
        group_size=prompt.group_size,
        max_tokens=prompt.max_tokens,
        temperature=prompt.temperature,
        policy_version=prompt.policy_version,
        reference_epoch=prompt.reference_epoch,
        admitted_at=prompt.admitted_at,
    )


def _prompt_from_pb(message: pb.Prompt) -> Prompt:
    return Prompt(
        sequence=message.sequence,
        prompt_id=message.prompt_id,
        token_ids=np.frombuffer(message.token_ids, dtype=TOKEN_DTYPE),
        text=message.text,
        task=message.task,
        answer=message.answer,
        task_data=json.loads(message.task_data_json) if message.task_data_json else {},
        group_size=message.group_size,
        max_tokens=message.max_tokens,
        temperature=message.temperature,
        policy_version=message.policy_version,
        reference_epoch=message.reference_epoch,
        admitted_at=message.admitted_at,
    )


def _completion_to_pb(completion: Completion) -> pb.Completion:
    return pb.Completion(
        sample_id=completion.sample_id,
        token_ids=completion.token_ids.astype(TOKEN_DTYPE).tobytes(),
        logprobs=completion.logprobs.astype(LOGPROB_DTYPE).tobytes(),
        versions=[
            pb.VersionSpan(policy_version=s.policy_version, start=s.start, end=s.end) for s in completion.versions
        ],
        finish_reason=completion.finish_reason,
        text=completion.text,
    )


def _completion_from_pb(message: pb.Completion) -> Completion:
    return Completion(
        sample_id=message.sample_id,
        token_ids=np.frombuffer(message.token_ids, dtype=TOKEN_DTYPE),
        logprobs=np.frombuffer(message.logprobs, dtype=LOGPROB_DTYPE),
        versions=tuple(VersionSpan(s.policy_version, s.start, s.end) for s in message.versions),
        finish_reason=message.finish_reason,
        text=message.text,
    )


def _group_to_pb(group: Group) -> pb.Group:
    return pb.Group(prompt=_prompt_to_pb(group.prompt), completions=[_completion_to_pb(c) for c in group.completions])


def _group_from_pb(message: pb.Group) -> Group:
    return Group(_prompt_from_pb(message.prompt), tuple(_completion_from_pb(c) for c in message.completions))


def _labeled_from_pb(message: pb.LabeledGroup) -> LabeledGroup:
    verdicts = {
        v.sample_id: Verdict(v.sample_id, _LABEL_FROM_PB[v.label], v.status, v.method, v.seconds, v.extracted)
        for v in message.verdicts
    }
    return LabeledGroup(_group_from_pb(message.group), verdicts)


def _decoded(read: Callable[[bytes], T], payload: bytes) -> T:
    """Whatever is wrong with the bytes, it is one kind of error."""
    try:
        return read(payload)
    except (ValueError, KeyError) as error:
        raise DecodeError(f"{type(error).__name__}: {error}") from error


def encode_prompt(prompt: Prompt) -> bytes:
    """Serialise a prompt for the prompts stream."""
    return _prompt_to_pb(prompt).SerializeToString()


def decode_prompt(payload: bytes) -> Prompt:
    """Read a prompt back; raises `google.protobuf.message.DecodeError` on bytes that are none."""
    return _decoded(lambda bytes_: _prompt_from_pb(pb.Prompt.FromString(bytes_)), payload)


def encode_group(group: Group) -> bytes:
    """Serialise a group for the completions stream."""
    return _group_to_pb(group).SerializeToString()


def decode_group(payload: bytes) -> Group:
    """Read a group back; raises `google.protobuf.message.DecodeError` on bytes that are none."""
    return _decoded(lambda bytes_: _group_from_pb(pb.Group.FromString(bytes_)), payload)


def encode_labeled_group(labeled: LabeledGroup) -> bytes:
    """Serialise a labelled group for the labeled stream."""
    verdicts = [
        pb.Verdict(
            sample_id=v.sample_id,
            label=_LABEL_TO_PB[v.label],
            status=v.status,
            method=v.method,
            seconds=v.seconds,
            extracted=v.extracted,
        )
        for v in labeled.verdicts.values()
    ]
    return pb.LabeledGroup(group=_group_to_pb(labeled.group), verdicts=verdicts).SerializeToString()


def decode_labeled_group(payload: bytes) -> LabeledGroup:
    """Read a labelled group back; raises `google.protobuf.message.DecodeError` on bytes that are none."""
    return _decoded(lambda bytes_: _labeled_from_pb(pb.LabeledGroup.FromString(bytes_)), payload)
