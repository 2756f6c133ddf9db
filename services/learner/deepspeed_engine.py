"""The edge to DeepSpeed and transformers: the policy, its optimizer, and what lies on disk."""

import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch  # noqa: TID253  # this file wraps it
from numpy.typing import NDArray

from pacs.algo import token_logprobs
from pacs.errors import BadInput
from pacs.runtime.config import RunConfig
from services.learner.batches import Batch, MicroBatch, pad, plan_micro_batches
from services.learner.engine import SequenceLogprobs, StepOutcome

__all__ = ["DeepSpeedEngine"]

STATE_TAG = "state"
TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges*", "special_tokens*", "chat_template*", "added_tokens*")

logger = logging.getLogger(__name__)


class _ResponseLogprobs(torch.nn.Module):
    """The policy seen as a function from padded rows to the log-probs of their response tokens."""

    def __init__(self, policy: Any, temperature: float, chunk_tokens: int) -> None:
        super().__init__()
        self.policy = policy
        self._temperature = temperature
        self._chunk_tokens = chunk_tokens

    def forward(
        self,
        input_ids_bL: torch.Tensor,
        attention_mask_bL: torch.Tensor,
        row_N: torch.Tensor,
        column_N: torch.Tensor,
        target_N: torch.Tensor,
        temperature: float | None = None,
        with_entropy: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        hidden_bLD = self.policy.get_decoder()(
            input_ids=input_ids_bL, attention_mask=attention_mask_bL, use_cache=False
        ).last_hidden_state
        out = token_logprobs(
            hidden_bLD[row_N, column_N],
            self.policy.get_output_embeddings().weight,
            target_N,
            temperature=self._temperature if temperature is None else temperature,
            chunk_tokens=self._chunk_tokens,
            with_entropy=with_entropy,
        )
        return out.logp_T, out.entropy_T


class DeepSpeedEngine:
    """See `services.learner.engine.TrainingEngine`.

    Args:
        config: of the run.
        engine: what `deepspeed.initialize` returned.
        model_path: where the policy came from; its tokenizer goes into exports.

    """

    def __init__(self, config: RunConfig, engine: Any, model_path: Path) -> None:
        self._config = config
        self._engine = engine
        self._model_path = model_path
        self._policy = engine.module.policy
        self._optimizer_steps = 0
        self._dirty = False
        pad_id = self._policy.config.pad_token_id
        self._pad_token_id = 0 if pad_id is None else int(pad_id)

    @classmethod
    def start(cls, config: RunConfig) -> Self:
        """Load the policy and build its optimizer.

        Raises:
            BadInput: the model's folder cannot be read, or its head is of a kind whose log-probs we would get wrong.

        """
        os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
        torch.set_num_threads(config.learner.threads)
        torch.manual_seed(config.run.seed)
        policy = _load_policy(config)
        wrapped = _ResponseLogprobs(policy, config.rollout.temperature, config.learner.logit_chunk_tokens)
        return cls(config, _initialize(wrapped, config), config.model.path)

    @property
    def backend(self) -> str:
        """How weights travel from where this engine keeps them: gloo from CPU, nccl from CUDA."""
        return "nccl" if self._engine.device.type == "cuda" else "gloo"

    def logprobs(self, batch: Batch, rows: NDArray[np.int64]) -> SequenceLogprobs:
        """Log-probs of some rows' responses, without gradient."""
        tokens: dict[int, NDArray[np.float32]] = {}
        entropy_sum, entropy_tokens = 0.0, 0
        self._engine.eval()
        with torch.no_grad():
            for micro_batch in self._micro_batches(batch, rows):
                logp_N, entropy_N = self._forward(micro_batch, with_entropy=True)
                assert entropy_N is not None
                entropy_sum += float(entropy_N.sum())
                entropy_tokens += entropy_N.numel()
                tokens.update(_by_row(micro_batch, logp_N.float().cpu().numpy()))
        empty = np.zeros(0, dtype=np.float32)
        return SequenceLogprobs(
            tuple(tokens.get(int(row), empty) for row in rows), entropy_sum / max(1, entropy_tokens)
        )

    def backward(self, batch: Batch, rows: NDArray[np.int64], coefficient_N: NDArray[np.float64]) -> None:
        """Accumulate the gradient of Σ coefficient · logp over the response tokens of `rows`."""
        self._engine.train()
        for micro_batch in self._micro_batches(batch, rows):
            logp_N, _ = self._forward(micro_batch)
            weight_N = torch.as_tensor(coefficient_N[batch.places(micro_batch.rows)], device=logp_N.device)
            self._engine.set_gradient_accumulation_boundary(False)
            self._engine.backward((logp_N * weight_N.to(logp_N.dtype)).sum())
            self._dirty = True

    def step(self) -> StepOutcome:
        """Apply the accumulated gradient, unless it is not finite."""
        rate = self._set_learning_rate()
        if not self._dirty:  # every coefficient was zero: nothing to learn from
            return StepOutcome(0.0, applied=True, learning_rate=rate)
        gradients = [p.grad for p in self._engine.module.parameters() if p.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if not np.isfinite(norm):
            self.discard_gradient()
            return StepOutcome(norm, applied=False, learning_rate=rate)
        self._engine.set_gradient_accumulation_boundary(True)
        self._engine.step()
        self._optimizer_steps += 1
        self._dirty = False
        return StepOutcome(norm, applied=True, learning_rate=rate)

    def discard_gradient(self) -> None:
        """Clear the accumulated gradient without a step."""
        self._engine.optimizer.zero_grad()
        self._engine.module.zero_grad()
        self._dirty = False

    def probe(self, token_ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """Log-probs at temperature 1 of tokens 1…T-1."""
        ids = torch.as_tensor(token_ids.astype(np.int64), device=self._engine.device)
        column_N = torch.arange(len(token_ids) - 1, device=ids.device)
        self._engine.eval()
        with torch.no_grad():
            logp_N, _ = self._engine(
                ids[None], torch.ones_like(ids)[None], torch.zeros_like(column_N), column_N, ids[1:], temperature=1.0
            )
        result: NDArray[np.float32] = logp_N.float().cpu().numpy()
        return result

    def named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The policy's tensors under their checkpoint names, tied ones once."""
        for name, parameter in self._policy.named_parameters():
            yield name, parameter.detach()

    def save(self, directory: Path) -> None:
        """Write model, optimizer, schedule and random state."""
        client_state = {"optimizer_steps": self._optimizer_steps, "torch_rng": torch.get_rng_state()}
        self._engine.save_checkpoint(str(directory), tag=STATE_TAG, client_state=client_state)

    def load(self, directory: Path) -> None:
        """Read what `save` wrote."""
        if not (directory / STATE_TAG).is_dir():
            raise BadInput(f"DeepSpeed finds no checkpoint in {directory}; remove the folder to use the one before it")
        _, client_state = self._engine.load_checkpoint(str(directory), tag=STATE_TAG)
        self._optimizer_steps = int(client_state["optimizer_steps"])
        torch.set_rng_state(client_state["torch_rng"])

    def export(self, directory: Path) -> None:
        """Write the policy in Hugging Face format, tokenizer included."""
        self._policy.save_pretrained(str(directory))
        for pattern in TOKENIZER_FILES:
            for source in self._model_path.glob(pattern):
                shutil.copy2(source, directory / source.name)

    def describe(self) -> Mapping[str, Any]:
        """Parameters, dtype and device."""
        parameters = sum(p.numel() for p in self._policy.parameters())
        return {"parameters": parameters, "dtype": self._config.model.dtype, "device": str(self._engine.device)}

    def _micro_batches(self, batch: Batch, rows: NDArray[np.int64]) -> Iterator[MicroBatch]:
        plan = plan_micro_batches(batch.tokens_B, rows, self._config.learner.microbatch_tokens)
        return (pad(batch, part, self._pad_token_id) for part in plan)

    def _forward(self, micro_batch: MicroBatch, with_entropy: bool = False) -> tuple[torch.Tensor, torch.Tensor | None]:
        arrays = (
            micro_batch.input_ids_bL,
            micro_batch.attention_mask_bL,
            micro_batch.row_N,
            micro_batch.column_N,
            micro_batch.target_N,
        )
        tensors = [torch.as_tensor(array, device=self._engine.device) for array in arrays]
        logp_N, entropy_N = self._engine(*tensors, with_entropy=with_entropy)
        return logp_N, entropy_N

    def _set_learning_rate(self) -> float:
        settings = self._config.learner
        warm = min(1.0, (self._optimizer_steps + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
        for group in self._engine.optimizer.param_groups:
            group["lr"] = settings.learning_rate * warm
        return settings.learning_rate * warm


def _load_policy(config: RunConfig) -> Any:
    from transformers import AutoModelForCausalLM

    path, dtype = config.model.path, getattr(torch, config.model.dtype)
    try:
        policy = AutoModelForCausalLM.from_pretrained(str(path), dtype=dtype, local_files_only=True)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"model.path must hold a causal language model in Hugging Face format, got {path}: {error}"
        ) from error
    head = policy.get_output_embeddings()
    softcap = getattr(policy.config, "final_logit_softcapping", None)
    if softcap or getattr(head, "bias", None) is not None:
        raise BadInput(
            f"the model's head must be a plain linear map, got bias={head.bias is not None}, "
            f"final_logit_softcapping={softcap} in {path}; its log-probs would be wrong here"
        )
    if config.learner.gradient_checkpointing:
        policy.gradient_checkpointing_enable()
    return policy


def _initialize(wrapped: torch.nn.Module, config: RunConfig) -> Any:
    import deepspeed

    # Otherwise DeepSpeed compiles an operator for minutes that is slower here.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    _join_default_group(backend)
    settings = config.learner
    optimizer = torch.optim.AdamW(
        wrapped.parameters(),
        lr=settings.learning_rate,
        betas=settings.adam_betas,
        weight_decay=settings.weight_decay,
    )
    engine, *_ = deepspeed.initialize(
        model=wrapped,
        optimizer=optimizer,
        dist_init_required=False,
        config={
            "train_micro_batch_size_per_gpu": 1,  # ours vary; DeepSpeed only counts with this
            "gradient_accumulation_steps": 1,  # the loss is normalised by us
            "gradient_clipping": settings.max_grad_norm,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": {"stage": 0},
            "bf16": {"enabled": config.model.dtype == "bfloat16"},
            "steps_per_print": 10**9,
        },
    )
    return engine


def _join_default_group(backend: str) -> None:
    """Start torch.distributed ourselves: DeepSpeed would bind the communicator to a device, and later syncs hang."""
    if torch.distributed.is_initialized():
        return
    store = torch._C._distributed_c10d.HashStore()
    torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}.items():
        os.environ.setdefault(name, value)


def _by_row(micro_batch: MicroBatch, logp_N: NDArray[np.float32]) -> dict[int, NDArray[np.float32]]:
    """Split a micro-batch's response log-probs by batch row; places are ordered by row."""
    ends = np.searchsorted(micro_batch.row_N, np.arange(1, len(micro_batch.rows)))
    return {int(row): part for row, part in zip(micro_batch.rows, np.split(logp_N, ends), strict=True)}
