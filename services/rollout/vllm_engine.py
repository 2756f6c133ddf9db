"""vLLM's AsyncLLM as a `SamplingEngine`.

Fixed here, because training depends on it: token ids in and out; the sampled tokens' log-probs after temperature; no
truncation of the distribution; all end-of-sequence ids of the model's generation config stop; one final output a
request (streamed outputs lose completions when n > 1).
"""

import asyncio
import os
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pacs.errors import DeadlineExceeded, PacsError, ServiceFailed
from pacs.transport.manifest import Adapters, TensorMeta
from pacs.wire.groups import Completion, Group, Prompt, VersionSpan
from services.rollout.engine import PromptTooLong, SamplingAborted

__all__ = ["VllmEngine"]

_GIB = 1 << 30
_ANSWER_SECONDS = 60.0  # for pause, resume and probe: a few engine steps, each bounded by the batch's tokens
_LOADING_SECONDS = 60.0  # beyond the transfer's own deadline, which the worker keeps: finalising the layers
_PROBE_PRIORITY = -1  # ahead of every request (0): a publication waits for it
_CPU_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # two threads on shared cores were many times slower than one
    "TORCH_COMPILE_DISABLE": "1",  # a minute's start for no gain on small models
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the worker lives in the engine's process: one process less
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # replicas on one machine would all be bound to the same core
}
_ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1"}


class VllmEngine:
    """One replica's engine; make it with `start`, inside the event loop that will use it."""

    def __init__(self, llm: Any, max_model_tokens: int) -> None:
        self._llm = llm
        self._max_model_tokens = max_model_tokens
        self._tokenizer = llm.get_tokenizer()
        self._requests: set[str] = set()
        self._requests_total = 0
        self._completion_tokens_total = 0
        self._communicator_timeout_seconds = _ANSWER_SECONDS
        self._paused = False
        self._half_loaded = False

    @classmethod
    async def start(
        cls,
        model: str | Path,
        *,
        dtype: str,
        seed: int,
        max_model_tokens: int,
        max_sequences: int,
        kv_cache_gib: float | None = None,
        weight_backend: str | None = None,
        worker_extension_cls: str | None = None,
        log_stats: bool = False,
    ) -> Self:
        """Load the model and start vLLM's processes; policy version 0 until weights are received.

        Args:
            model: directory or hub name of a Hugging Face model.
            dtype: torch name of the weights' dtype.
            seed: of the whole engine's sampler. (Seeds a request kill vLLM's CPU engine at a prefill in chunks.)
            max_model_tokens: prompt and response tokens of one sequence at most.
            max_sequences: sequences decoded together; a group counts `group_size`.
            kv_cache_gib: memory of the KV cache; None: what vLLM finds free (all of a machine's, on CPU).
            weight_backend: gloo or nccl, the learner's; None: nccl where there is a GPU.
            worker_extension_cls: dotted name of a subclass of `WeightTransferWorker`; None: itself.
            log_stats: keep vLLM's own metrics (costs time at every step).

        """
        on_gpu = _prepare_environment()
        from vllm.config import WeightTransferConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        from services.rollout.weight_transfer import WORKER_EXTENSION, registered_name

        backend = weight_backend or ("nccl" if on_gpu else "gloo")
        arguments = AsyncEngineArgs(
            model=str(model),
            dtype=dtype,
            seed=seed,
            max_model_len=max_model_tokens,
            max_num_seqs=max_sequences,
            kv_cache_memory_bytes=None if kv_cache_gib is None else int(kv_cache_gib * _GIB),
            enforce_eager=not on_gpu,
            logprobs_mode="processed_logprobs",  # after temperature; at temperature 1 the same as raw ones
            scheduling_policy="priority",
            disable_log_stats=not log_stats,
            weight_transfer_config=WeightTransferConfig(backend=registered_name(backend)),
            worker_extension_cls=worker_extension_cls or WORKER_EXTENSION,
        )
        engine = cls(AsyncLLM.from_engine_args(arguments), max_model_tokens)
        await engine._llm.update_weight_version("0")
        return engine

    @property
    def max_model_tokens(self) -> int:
        """Prompt and response tokens of one sequence at most."""
        return self._max_model_tokens

    @property
    def completion_tokens_total(self) -> int:
        """Response tokens sampled since the start, of finished groups."""
        return self._completion_tokens_total

    def encode(self, text: str) -> list[int]:
        """Token ids of a bare text."""
        return [int(token_id) for token_id in self._tokenizer.encode(text)]

    async def sample(self, prompt: Prompt) -> Group:
        """Sample the prompt's `group_size` completions; see `SamplingEngine`."""
        if len(prompt.token_ids) + prompt.max_tokens > self._max_model_tokens:
            raise PromptTooLong(len(prompt.token_ids), prompt.max_tokens, self._max_model_tokens)
        from vllm import SamplingParams

        parameters = SamplingParams(
            n=prompt.group_size,
            temperature=prompt.temperature,
            max_tokens=prompt.max_tokens,
            logprobs=0,
            **_final_only(),
        )
        output = await self._generate(prompt.token_ids, parameters)
        if any(choice.finish_reason == "abort" for choice in output.outputs):
            raise SamplingAborted(f"prompt {prompt.sequence} was aborted while it was sampled")
        completions = tuple(self._completion(prompt, choice) for choice in output.outputs)
        self._completion_tokens_total += sum(len(completion.token_ids) for completion in completions)
        return Group(prompt, completions)

    async def pause(self) -> None:
        """Freeze requests in flight between two tokens and clear the caches.

        vLLM preempts what runs: after `resume` its KV cache is computed again, with the weights of then.
        """
        await self._within(_ANSWER_SECONDS, "the engine to pause", self._llm.pause_generation(mode="keep"))
        self._paused = True

    async def resume(self) -> None:
        """Go on sampling; see `SamplingEngine`."""
        if self._half_loaded:
            raise PacsError("an engine with half-loaded weights must not sample; publish to it again, then resume")
        await self._within(_ANSWER_SECONDS, "the engine to resume", self._llm.resume_generation())
        self._paused = False

    async def join_communicator(self, address: str, rank: int, world_size: int, timeout_seconds: float) -> None:
        """Meet the learner and the other replicas; see `SamplingEngine`."""
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        where = {"address": address, "rank": rank, "world_size": world_size, "timeout_seconds": timeout_seconds}
        self._communicator_timeout_seconds = timeout_seconds
        await self._within(
            timeout_seconds + _ANSWER_SECONDS,
            f"the engine's worker to join the communicator at {address}",
            self._llm.init_weight_transfer_engine(WeightTransferInitRequest(init_info=where)),
        )

    async def receive_weights(
        self,
        policy_version: int,
        tensors: Sequence[TensorMeta],
        bucket_bytes: int,
        adapters: Adapters | None = None,
    ) -> list[str]:
        """Receive the whole model, or adapters of the one that was started with, while paused; see `SamplingEngine`."""
        if not self._paused:
            raise PacsError(f"weights are received only while paused, got version {policy_version}; call pause first")
        from services.rollout.weight_transfer import PublicationInfo

        self._half_loaded = True
        answers: list[list[str]] = await self._within(
            self._communicator_timeout_seconds + _LOADING_SECONDS,
            f"the engine's worker to load policy version {policy_version}",
            self._llm.collective_rpc(
                "publish_weights", args=(PublicationInfo.payload(tensors, bucket_bytes, adapters),)
            ),
        )
        if any(answer != answers[0] for answer in answers):
            raise PacsError(f"the engine's {len(answers)} workers received different weights; publish again")
        await self._llm.update_weight_version(str(policy_version))
        self._half_loaded = False
        return answers[0]

    async def probe(self, token_ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """Log-probabilities at temperature 1 of tokens 1…T-1, [T-1]; see `SamplingEngine`."""
        from vllm import SamplingParams

        parameters = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, **_final_only())
        waited_for = f"log-probs of a probe of {len(token_ids)} tokens"
        request = self._generate(token_ids, parameters, priority=_PROBE_PRIORITY)
        output = await self._within(_ANSWER_SECONDS, waited_for, request)
        return np.asarray(output.prompt_logprobs.logprobs, dtype=np.float32)

    async def abort_all(self) -> None:
        """End all requests in flight; see `SamplingEngine`."""
        await self._within(_ANSWER_SECONDS, "the engine to abort its requests", self._llm.abort(list(self._requests)))

    async def check_health(self) -> None:
        """Look at the engine process's state; sends nothing, so it never waits behind a transfer."""
        await self._within(_ANSWER_SECONDS, "the engine's health", self._llm.check_health())

    async def close(self) -> None:
        """Stop the engine's processes; safe to repeat."""
        llm, self._llm = self._llm, None  # let go of it now: its finaliser fails once the interpreter is going down
        if llm is not None:
            llm.shutdown()

    async def _generate(self, token_ids: NDArray[np.int32], parameters: Any, priority: int = 0) -> Any:
        from vllm.inputs import TokensPrompt
        from vllm.v1.engine.exceptions import EngineDeadError

        self._requests_total += 1
        request_id = str(self._requests_total)
        self._requests.add(request_id)
        prompt = TokensPrompt(prompt_token_ids=token_ids.tolist())
        outputs = self._llm.generate(prompt, parameters, request_id, priority=priority)
        try:
            (final,) = [output async for output in outputs]
        except EngineDeadError as fault:
            raise ServiceFailed(f"the vLLM engine died: {fault}; see its log above") from fault
        finally:
            self._requests.discard(request_id)
        return final

    def _completion(self, prompt: Prompt, choice: Any) -> Completion:
        """What vLLM says of one sequence, as the group's value."""
        return Completion(
            sample_id=f"{prompt.sequence}/{choice.index}",
            token_ids=np.asarray(choice.token_ids, dtype=np.int32),
            logprobs=np.asarray(choice.logprobs.logprobs, dtype=np.float32),
            versions=tuple(VersionSpan(int(span.version), span.start, span.end) for span in choice.weight_versions),
            finish_reason=choice.finish_reason,
            text=self._tokenizer.decode(choice.token_ids, skip_special_tokens=True),
        )

    async def _within(self, seconds: float, waited_for: str, call: Coroutine[Any, Any, Any]) -> Any:
        """Await `call` with a deadline, and say in our own errors what vLLM says in its."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            return await asyncio.wait_for(call, seconds)
        except TimeoutError as fault:
            raise DeadlineExceeded(waited_for, seconds) from fault
        except PacsError:
            raise
        except EngineDeadError as fault:
            raise ServiceFailed(f"the vLLM engine died while we waited for {waited_for}: {fault}") from fault
        except Exception as fault:  # vLLM hands a worker's error on as a bare Exception with its text
            raise PacsError(f"waiting for {waited_for}: {fault}") from fault


def _prepare_environment() -> bool:
    """Set what vLLM reads at its import, unless the user did; returns whether there is a GPU."""
    import torch

    on_gpu = torch.cuda.is_available()
    for name, value in (_ENVIRONMENT | ({} if on_gpu else _CPU_ENVIRONMENT)).items():
        os.environ.setdefault(name, value)
    return on_gpu


def _final_only() -> dict[str, Any]:
    """One output a request, log-probs in flat lists, and no text token by token: we decode once, at the end."""
    from vllm.sampling_params import RequestOutputKind

    return {"output_kind": RequestOutputKind.FINAL_ONLY, "flat_logprobs": True, "detokenize": False}
