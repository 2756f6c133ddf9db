from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CheckRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[CheckItem]
    def __init__(self, items: _Optional[_Iterable[_Union[CheckItem, _Mapping]]] = ...) -> None: ...

class CheckItem(_message.Message):
    __slots__ = ("task", "answer", "task_data_json", "completion", "gold")
    TASK_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    TASK_DATA_JSON_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    GOLD_FIELD_NUMBER: _ClassVar[int]
    task: str
    answer: str
    task_data_json: str
    completion: str
    gold: bool
    def __init__(self, task: _Optional[str] = ..., answer: _Optional[str] = ..., task_data_json: _Optional[str] = ..., completion: _Optional[str] = ..., gold: _Optional[bool] = ...) -> None: ...

class CheckReply(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[CheckResult]
    def __init__(self, results: _Optional[_Iterable[_Union[CheckResult, _Mapping]]] = ...) -> None: ...

class CheckResult(_message.Message):
    __slots__ = ("label", "status", "method", "seconds", "extracted")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    EXTRACTED_FIELD_NUMBER: _ClassVar[int]
    label: int
    status: str
    method: str
    seconds: float
    extracted: str
    def __init__(self, label: _Optional[int] = ..., status: _Optional[str] = ..., method: _Optional[str] = ..., seconds: _Optional[float] = ..., extracted: _Optional[str] = ...) -> None: ...
