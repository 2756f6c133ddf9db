from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AgentEvent(_message.Message):
    __slots__ = ("hello", "heartbeat", "result", "step", "finished")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    heartbeat: Heartbeat
    result: CommandResult
    step: StepReport
    finished: Finished
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., result: _Optional[_Union[CommandResult, _Mapping]] = ..., step: _Optional[_Union[StepReport, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("agent_id", "role", "fresh", "policy_version")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    FRESH_FIELD_NUMBER: _ClassVar[int]
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    role: str
    fresh: bool
    policy_version: int
    def __init__(self, agent_id: _Optional[str] = ..., role: _Optional[str] = ..., fresh: _Optional[bool] = ..., policy_version: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("waiting_for", "gauges")
    class GaugesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    GAUGES_FIELD_NUMBER: _ClassVar[int]
    waiting_for: str
    gauges: _containers.ScalarMap[str, float]
    def __init__(self, waiting_for: _Optional[str] = ..., gauges: _Optional[_Mapping[str, float]] = ...) -> None: ...

class CommandResult(_message.Message):
    __slots__ = ("command_id", "error", "digests", "probe_logprobs", "address")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    PROBE_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    error: str
    digests: _containers.RepeatedScalarFieldContainer[str]
    probe_logprobs: bytes
    address: str
    def __init__(self, command_id: _Optional[int] = ..., error: _Optional[str] = ..., digests: _Optional[_Iterable[str]] = ..., probe_logprobs: _Optional[bytes] = ..., address: _Optional[str] = ...) -> None: ...

class StepReport(_message.Message):
    __slots__ = ("step", "figures_json")
    STEP_FIELD_NUMBER: _ClassVar[int]
    FIGURES_JSON_FIELD_NUMBER: _ClassVar[int]
    step: int
    figures_json: str
    def __init__(self, step: _Optional[int] = ..., figures_json: _Optional[str] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ("step",)
    STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    def __init__(self, step: _Optional[int] = ...) -> None: ...

class Command(_message.Message):
    __slots__ = ("command_id", "pause", "open_communicator", "join_communicator", "transfer_weights", "probe", "resume", "stop", "reset")
    COMMAND_ID_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    OPEN_COMMUNICATOR_FIELD_NUMBER: _ClassVar[int]
    JOIN_COMMUNICATOR_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    command_id: int
    pause: Pause
    open_communicator: OpenCommunicator
    join_communicator: JoinCommunicator
    transfer_weights: TransferWeights
    probe: Probe
    resume: Resume
    stop: Stop
    reset: Reset
    def __init__(self, command_id: _Optional[int] = ..., pause: _Optional[_Union[Pause, _Mapping]] = ..., open_communicator: _Optional[_Union[OpenCommunicator, _Mapping]] = ..., join_communicator: _Optional[_Union[JoinCommunicator, _Mapping]] = ..., transfer_weights: _Optional[_Union[TransferWeights, _Mapping]] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., reset: _Optional[_Union[Reset, _Mapping]] = ...) -> None: ...

class Pause(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OpenCommunicator(_message.Message):
    __slots__ = ("world_size", "timeout_seconds")
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    world_size: int
    timeout_seconds: float
    def __init__(self, world_size: _Optional[int] = ..., timeout_seconds: _Optional[float] = ...) -> None: ...

class JoinCommunicator(_message.Message):
    __slots__ = ("address", "rank", "world_size", "timeout_seconds")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    address: str
    rank: int
    world_size: int
    timeout_seconds: float
    def __init__(self, address: _Optional[str] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., timeout_seconds: _Optional[float] = ...) -> None: ...

class TransferWeights(_message.Message):
    __slots__ = ("policy_version", "tensors", "bucket_bytes", "adapters")
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    BUCKET_BYTES_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    policy_version: int
    tensors: _containers.RepeatedCompositeFieldContainer[TensorMeta]
    bucket_bytes: int
    adapters: Adapters
    def __init__(self, policy_version: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[TensorMeta, _Mapping]]] = ..., bucket_bytes: _Optional[int] = ..., adapters: _Optional[_Union[Adapters, _Mapping]] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("token_ids",)
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    token_ids: bytes
    def __init__(self, token_ids: _Optional[bytes] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("policy_version",)
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    policy_version: int
    def __init__(self, policy_version: _Optional[int] = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Reset(_message.Message):
    __slots__ = ("reference_epoch", "reason")
    REFERENCE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    reference_epoch: int
    reason: str
    def __init__(self, reference_epoch: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class TensorMeta(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class Adapters(_message.Message):
    __slots__ = ("rank", "alpha", "base")
    RANK_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    rank: int
    alpha: float
    base: str
    def __init__(self, rank: _Optional[int] = ..., alpha: _Optional[float] = ..., base: _Optional[str] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("step", "groups_trained", "tensors", "bucket_bytes", "reference_epoch", "adapters")
    STEP_FIELD_NUMBER: _ClassVar[int]
    GROUPS_TRAINED_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    BUCKET_BYTES_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ADAPTERS_FIELD_NUMBER: _ClassVar[int]
    step: int
    groups_trained: int
    tensors: _containers.RepeatedCompositeFieldContainer[TensorMeta]
    bucket_bytes: int
    reference_epoch: int
    adapters: Adapters
    def __init__(self, step: _Optional[int] = ..., groups_trained: _Optional[int] = ..., tensors: _Optional[_Iterable[_Union[TensorMeta, _Mapping]]] = ..., bucket_bytes: _Optional[int] = ..., reference_epoch: _Optional[int] = ..., adapters: _Optional[_Union[Adapters, _Mapping]] = ...) -> None: ...

class PublishReply(_message.Message):
    __slots__ = ("policy_version", "max_logprob_gap", "phase_seconds", "version_steps")
    class PhaseSecondsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class VersionStepsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    POLICY_VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_LOGPROB_GAP_FIELD_NUMBER: _ClassVar[int]
    PHASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    VERSION_STEPS_FIELD_NUMBER: _ClassVar[int]
    policy_version: int
    max_logprob_gap: float
    phase_seconds: _containers.ScalarMap[str, float]
    version_steps: _containers.ScalarMap[int, int]
    def __init__(self, policy_version: _Optional[int] = ..., max_logprob_gap: _Optional[float] = ..., phase_seconds: _Optional[_Mapping[str, float]] = ..., version_steps: _Optional[_Mapping[int, int]] = ...) -> None: ...
