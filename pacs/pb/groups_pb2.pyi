from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Label(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LABEL_UNSPECIFIED: _ClassVar[Label]
    LABEL_WRONG: _ClassVar[Label]
    LABEL_CORRECT: _ClassVar[Label]
    LABEL_INVALID: _ClassVar[Label]
LABEL_UNSPECIFIED: Label
LABEL_WRONG: Label
LABEL_CORRECT: Label
LABEL_INVALID: Label

class Prompt(_message.Message):
    __slots__ = ("sequence", "prompt_id", "token_ids", "text", "task", "answer", "task_data_json", "group_size", "max_tokens", "temperature", "policy_version", "reference_epoch", "admitted_at")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    TASK_DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_AT_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    prompt_id: str
    token_ids: bytes
    text: str
    task: str
    answer: str
    task_data_json: str
    group_size: int
    max_tokens: int
    temperature: float
    policy_version: int
    reference_epoch: int
    admitted_at: float
    def __init__(self, sequence: _Optional[int] = ..., prompt_id: _Optional[str] = ..., token_ids: _Optional[bytes] = ..., text: _Optional[str] = ..., task: _Optional[str] = ..., answer: _Optional[str] = ..., task_data_json: _Optional[str] = ..., group_size: _Optional[int] = ..., max_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., policy_version: _Optional[int] = ..., reference_epoch: _Optional[int] = ..., admitted_at: _Optional[float] = ...) -> None: ...

class VersionSpan(_message.Message):
    __slots__ = ("policy_version", "start", "end")
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    policy_version: int
    start: int
    end: int
    def __init__(self, policy_version: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Completion(_message.Message):
    __slots__ = ("sample_id", "token_ids", "logprobs", "versions", "finish_reason", "text")
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    sample_id: str
    token_ids: bytes
    logprobs: bytes
    versions: _containers.RepeatedCompositeFieldContainer[VersionSpan]
    finish_reason: str
    text: str
    def __init__(self, sample_id: _Optional[str] = ..., token_ids: _Optional[bytes] = ..., logprobs: _Optional[bytes] = ..., versions: _Optional[_Iterable[_Union[VersionSpan, _Mapping]]] = ..., finish_reason: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("prompt", "completions")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    prompt: Prompt
    completions: _containers.RepeatedCompositeFieldContainer[Completion]
    def __init__(self, prompt: _Optional[_Union[Prompt, _Mapping]] = ..., completions: _Optional[_Iterable[_Union[Completion, _Mapping]]] = ...) -> None: ...

class Verdict(_message.Message):
    __slots__ = ("sample_id", "label", "status", "method", "seconds", "extracted")
    SAMPLE_ID_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXTRACTED_FIELD_NUMBER: _ClassVar[int]
    sample_id: str
    label: Label
    status: str
    method: str
    seconds: float
    extracted: str
    def __init__(self, sample_id: _Optional[str] = ..., label: _Optional[_Union[Label, str]] = ..., status: _Optional[str] = ..., method: _Optional[str] = ..., seconds: _Optional[float] = ..., extracted: _Optional[str] = ...) -> None: ...

class LabeledGroup(_message.Message):
    __slots__ = ("group", "verdicts")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    group: Group
    verdicts: _containers.RepeatedCompositeFieldContainer[Verdict]
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ..., verdicts: _Optional[_Iterable[_Union[Verdict, _Mapping]]] = ...) -> None: ...
