"""Hand-written fakes and factories for tests of this project and of what is built on it. Free of heavy libraries."""

import asyncio
import contextlib
import inspect
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pacs.errors import ServiceFailed
from pacs.local.ports import free_port
from pacs.local.redis_server import EmbeddedRedis
from pacs.runtime.config import RunConfig
from pacs.transport.manifest import Adapters, TensorMeta
from pacs.wire.groups import Completion, Group, Label, LabeledGroup, Prompt, Verdict, VersionSpan

__all__ = [
    "FakeSamplingEngine",
    "assert_eventually",
    "embedded_redis",
    "make_config",
    "make_group",
    "make_labeled_group",
    "make_prompt",
]

LABELS = {1: Label.CORRECT, 0: Label.WRONG, -1: Label.INVALID}
START_ATTEMPTS = 3  # another process may bind the port that was free a moment ago


def make_config(overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """A small valid run; `overrides` are laid over it by key, as `{"run.max_steps": 3}`."""
    tree: dict[str, Any] = {
        "run": {"name": "test", "max_steps": 4, "groups_per_step": 2},
        "model": {"path": "model", "max_tokens": 64},
        "data": {"path": "problems.jsonl", "task": "exact", "max_prompt_tokens": 16},
        "rollout": {"group_size": 2, "max_response_tokens": 16},
    }
    for key, value in (overrides or {}).items():
        section, _, name = key.partition(".")
        tree.setdefault(section, {})[name] = value
    return RunConfig.model_validate(tree)


def make_prompt(sequence: int = 0, **fields: Any) -> Prompt:
    """A prompt asking for two completions; any field may be given."""
    values: dict[str, Any] = {
        "prompt_id": f"problem-{sequence}",
        "token_ids": np.array([11, 12, 13], dtype=np.int32),
        "text": f"question {sequence}",
        "task": "exact",
        "answer": "42",
        "group_size": 2,
        "max_tokens": 16,
        "temperature": 1.0,
        "policy_version": 1,
    }
    return Prompt(sequence, **{**values, **fields})


def make_group(
    sequence: int = 0,
    responses: Sequence[Sequence[int]] = ((21, 22), (23,)),
    policy_version: int = 1,
    finish_reason: str = "stop",
    **prompt_fields: Any,
) -> Group:
    """A group with these response token ids, all sampled by one version; log-probs are −0.5, −1, −1.5, …"""
    prompt = make_prompt(sequence, **{"group_size": len(responses), "policy_version": policy_version, **prompt_fields})
    completions = (
        Completion(
            sample_id=f"{sequence}/{index}",
            token_ids=np.array(tokens, dtype=np.int32),
            logprobs=-0.5 * np.arange(1, len(tokens) + 1, dtype=np.float32),
            versions=(VersionSpan(policy_version, 0, len(tokens)),),
            finish_reason=finish_reason,
            text=" ".join(map(str, tokens)),
        )
        for index, tokens in enumerate(responses)
    )
    return Group(prompt, tuple(completions))


def make_labeled_group(sequence: int = 0, labels: Sequence[int] = (1, 0), **group_fields: Any) -> LabeledGroup:
    """A group with these labels: 1 correct, 0 wrong, −1 invalid; one response a label, or as `responses` says."""
    responses = group_fields.pop("responses", [[21 + index] * (index + 1) for index in range(len(labels))])
    group = make_group(sequence, responses, **group_fields)
    verdicts = {
        completion.sample_id: Verdict(completion.sample_id, LABELS[label], "ok" if label == 1 else "wrong", "text")
        for completion, label in zip(group.completions, labels, strict=True)
    }
    return LabeledGroup(group, verdicts)


async def assert_eventually(check: Callable[[], object | Awaitable[object]], timeout_seconds: float = 10.0) -> None:
    """Wait until `check` returns something true without an AssertionError.

    Raises:
        AssertionError: it did not in time; the last complaint is its cause.

    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        complaint: AssertionError | None = None
        try:
            outcome = check()
            if inspect.isawaitable(outcome):
                outcome = await outcome
            if outcome:
                return
        except AssertionError as error:
            complaint = error
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {timeout_seconds:g} s: {complaint or check}") from complaint
        await asyncio.sleep(0.005)


@contextlib.contextmanager
def embedded_redis(directory: Path | None = None) -> Iterator[EmbeddedRedis]:
    """A running server on a free port, with its data in `directory` or in a folder that goes away with it.

    Raises:
        BadInput: there is no server binary.

    """
    with contextlib.ExitStack() as stack:
        path = directory or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pacs-redis-")))
        server = _started(path)
        stack.callback(server.stop)
        yield server


def _started(directory: Path) -> EmbeddedRedis:
    for attempt in range(1, START_ATTEMPTS + 1):
        server = EmbeddedRedis(directory, free_port())
        try:
            server.start()
        except ServiceFailed:
            if attempt == START_ATTEMPTS:
                raise
        else:
            return server
    raise AssertionError("the last attempt returns or raises")


class FakeSamplingEngine:
    """A sampling engine (`services.rollout.engine.SamplingEngine`) without a model: fixed responses, real manners.

    Samples nothing while paused, and refuses to resume between a failed transfer and the next that works.

    Args:
        response: token ids of every completion.
        failure: raised by the next `sample`, once.
        transfer_failure: raised by the next `receive_weights`, once.

    """

    max_model_tokens = 64

    def __init__(
        self,
        response: Sequence[int] = (21, 22, 23),
        failure: Exception | None = None,
        transfer_failure: Exception | None = None,
    ) -> None:
        self.response = tuple(response)
        self.failure = failure
        self.transfer_failure = transfer_failure
        self.calls: list[str] = []
        self.policy_version = 0
        self.completion_tokens_total = 0
        self.probe_logprobs = np.array([-1.0, -2.0], dtype=np.float32)
        self._half_loaded = False
        self._running = asyncio.Event()
        self._running.set()

    async def sample(self, prompt: Prompt) -> Group:
        """Wait while paused, then answer the fixed response `group_size` times."""
        self.calls.append(f"sample {prompt.sequence}")
        await self._running.wait()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        group = make_group(prompt.sequence, [self.response] * prompt.group_size, self.policy_version)
        self.completion_tokens_total += len(self.response) * prompt.group_size
        return Group(prompt, group.completions)

    async def pause(self) -> None:
        """Stand still."""
        self.calls.append("pause")
        self._running.clear()

    async def join_communicator(self, address: str, rank: int, world_size: int, timeout_seconds: float) -> None:
        """Remember who asked."""
        self.calls.append(f"join {address} as {rank} of {world_size}")

    async def receive_weights(
        self,
        policy_version: int,
        tensors: Sequence[TensorMeta],
        bucket_bytes: int,
        adapters: Adapters | None = None,
    ) -> list[str]:
        """Take the version; the digest of a tensor is its name."""
        self.calls.append(f"receive {policy_version}" + (" as adapters" if adapters else ""))
        self._half_loaded = True
        if self.transfer_failure is not None:
            failure, self.transfer_failure = self.transfer_failure, None
            raise failure
        self._half_loaded, self.policy_version = False, policy_version
        return [tensor.name for tensor in tensors]

    async def resume(self) -> None:
        """Go on, unless half loaded."""
        self.calls.append("resume")
        if self._half_loaded:
            raise ServiceFailed("the weights are half loaded")
        self._running.set()

    async def probe(self, token_ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """`probe_logprobs`, whatever is asked."""
        self.calls.append("probe")
        return self.probe_logprobs

    async def abort_all(self) -> None:
        """Nothing is cut short here: what is asked is answered at once."""
        self.calls.append("abort_all")

    async def check_health(self) -> None:
        """Always well."""

    async def close(self) -> None:
        """Say so."""
        self.calls.append("close")
