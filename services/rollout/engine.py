"""What the rollout asks of a sampling engine; `vllm_engine.py` is the one that is shipped.

A publication of weights, seen from here: `pause` → (`join_communicator` where membership changed) → `receive_weights`
→ `resume` → `probe`. Nothing runs while paused, so the probe comes after `resume`; the caller holds finished groups
back until it has the verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pacs.errors import PacsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pacs.transport.manifest import Adapters, TensorMeta
    from pacs.wire.groups import Group, Prompt

__all__ = ["PromptTooLong", "SamplingAborted", "SamplingEngine"]


class PromptTooLong(PacsError):
    """A prompt and its response do not fit the engine's context; the group is dropped, the run goes on.

    Args:
        prompt_tokens: length of the prompt.
        max_tokens: response tokens asked for.
        max_model_tokens: what the engine can hold of both.

    """

    def __init__(self, prompt_tokens: int, max_tokens: int, max_model_tokens: int) -> None:
        super().__init__(prompt_tokens, max_tokens, max_model_tokens)
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.max_model_tokens = max_model_tokens

    def __str__(self) -> str:
        return (
            f"prompt and response must fit the engine's {self.max_model_tokens} tokens, got {self.prompt_tokens} + "
            f"{self.max_tokens}; raise model.max_tokens, or lower rollout.max_response_tokens or data.max_prompt_tokens"
        )


class SamplingAborted(PacsError):
    """`abort_all` ended the request: there is no group to hand over, the prompt is to be sampled again."""


class SamplingEngine(Protocol):
    """Samples groups and takes new weights while it does.

    Faults of the engine itself are `ServiceFailed`; then it must be started anew. Every call has a deadline.
    """

    @property
    def max_model_tokens(self) -> int:
        """Prompt and response tokens of one sequence at most."""
        ...

    @property
    def completion_tokens_total(self) -> int:
        """Response tokens sampled since the start, of finished groups."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of a bare text, for requests of people; prompts of a run come as ids."""
        ...

    async def sample(self, prompt: Prompt) -> Group:
        """Sample the prompt's `group_size` completions.

        Raises:
            PromptTooLong: prompt and response do not fit.
            SamplingAborted: `abort_all` came first.

        """
        ...

    async def pause(self) -> None:
        """Stop between two tokens: requests in flight freeze, new ones queue; caches are cleared."""
        ...

    async def join_communicator(self, address: str, rank: int, world_size: int, timeout_seconds: float) -> None:
        """Meet the learner (rank 0) and the other replicas; returns when all are there. Replaces an earlier group.

        Raises:
            PacsError: with the worker's own text, e.g. which ranks did not come.

        """
        ...

    async def receive_weights(
        self,
        policy_version: int,
        tensors: Sequence[TensorMeta],
        bucket_bytes: int,
        adapters: Adapters | None = None,
    ) -> list[str]:
        """Receive the whole model; returns the digests of what arrived, in the order of `tensors`.

        With `adapters` the tensors are those of adapters, which are merged into the base that was started with.

        After a failure the weights are half old and half new: `resume` is refused until a later call succeeds.

        Raises:
            PacsError: with the worker's own text.

        """
        ...

    async def resume(self) -> None:
        """Go on; raises `PacsError` where the weights are half loaded."""
        ...

    async def probe(self, token_ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """Log-probabilities at temperature 1 of tokens 1…T-1, each given those before it: float32 [T-1], nats.

        Raises:
            DeadlineExceeded: no answer, as while paused.

        """
        ...

    async def abort_all(self) -> None:
        """End all requests in flight; their `sample` raises `SamplingAborted`."""
        ...

    async def check_health(self) -> None:
        """Answer at once, also during a transfer; raises `ServiceFailed` where the engine is dead."""
        ...

    async def close(self) -> None:
        """Stop the engine and its processes."""
        ...
