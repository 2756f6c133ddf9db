"""The edge to DeepSpeed: the policy, its optimizer, and what lies on disk.

With more than one rank every method is called on all of them, in the same order and with the same arguments: each does
its share, and rank 0's result is the whole.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch  # noqa: TID253  # this file wraps it
from numpy.typing import NDArray

from pacs.errors import ServiceFailed
from pacs.runtime.config import RunConfig
from pacs.transport.manifest import TensorMeta, plan_buckets
from services.learner.batches import Batch, MicroBatch, pad, placeholder
from services.learner.computed import Computed, collect
from services.learner.deepspeed_setup import initialize
from services.learner.engine import Coefficients, SequenceLogprobs, StepOutcome
from services.learner.kernel_trial import try_out
from services.learner.layout import STATE_TAG, check_layout, layout, write_layout
from services.learner.logprob_kernel import Installed, agreed, choose_kernel
from services.learner.lora import keep_frozen_out, published_parameters
from services.learner.plans import Plan, divide
from services.learner.policy import ResponseLogprobs, export_policy, load_policy
from services.learner.reference import ReferenceSnapshot
from services.learner.value_head import ValueHead
from services.learner.world import World
from services.learner.zero import gradient_store

__all__ = ["DeepSpeedEngine"]

_Loss = Callable[[MicroBatch, torch.Tensor, torch.Tensor | None, Computed], torch.Tensor]

CLIP_EPSILON = 1e-6  # torch.nn.utils.clip_grad_norm_'s

ROUND_ALIKE = "AUTO,STRICT"
"""To MKL, which reads it at its first product: a row's result must not depend on how many rows there are."""


class DeepSpeedEngine:
    """See `services.learner.engine.TrainingEngine`.

    Args:
        config: of the run.
        engine: what `deepspeed.initialize` returned.
        world: the ranks that train together.

    """

    def __init__(self, config: RunConfig, engine: Any, world: World) -> None:
        self.config = config
        self._engine = engine
        self._world = world
        self._gradients = gradient_store(engine)
        self._policy = engine.module.policy
        self._has_values = engine.module.value_head is not None
        self._reference = _reference(config, self._policy, world)
        self.at_reference = False
        self._schedule_steps = 0
        self._dirty = False
        pad_id = self._policy.config.pad_token_id
        self._pad_token_id = 0 if pad_id is None else int(pad_id)

    @classmethod
    def start(cls, config: RunConfig, world: World | None = None) -> Self:
        """Load the policy and build its optimizer.

        Args:
            config: of the run.
            world: the ranks that train together; None for this process alone.

        Raises:
            BadInput: the model's folder cannot be read, or its head is of a kind whose log-probs we would get wrong,
                or the optimizer is one whose state cannot be reset, or the kernel asked for cannot be used.

        """
        os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")
        os.environ.setdefault("MKL_CBWR", ROUND_ALIKE)
        world = world or World.alone()
        torch.set_num_threads(config.learner.threads)
        torch.manual_seed(config.run.seed)
        kernel = agreed(choose_kernel(config, Installed.here(), try_out), world.total)
        policy = load_policy(config)
        head = ValueHead(policy.config.get_text_config().hidden_size) if config.algorithm.name == "ppo" else None
        wrapped = ResponseLogprobs(policy, head, kernel, config.rollout.temperature, config.learner.logit_chunk_tokens)
        keep_frozen_out(wrapped)
        engine = initialize(wrapped, config)
        if config.learner.zero_stage == 3:  # the head's weights are used outside of its own module's forward pass
            import deepspeed

            deepspeed.zero.register_external_parameter(wrapped, policy.get_output_embeddings().weight)
        return cls(config, engine, world)

    @property
    def backend(self) -> str:
        """How weights travel from where this engine keeps them: gloo from CPU, nccl from CUDA."""
        return "nccl" if self._engine.device.type == "cuda" else "gloo"

    @property
    def weights_divided(self) -> bool:
        """Whether no rank has whole weights: any pass and any look at them then needs all ranks."""
        return self.config.learner.zero_stage == 3

    def logprobs(self, batch: Batch, rows: NDArray[np.int64], *, whole_groups: bool = False) -> SequenceLogprobs:
        """Log-probs of some rows' responses, without gradient."""
        computed = Computed(self._has_values)
        self._engine.eval()
        plans = self._divide(batch, rows, whole_groups=whole_groups)
        with torch.no_grad():
            for micro_batch in self._micro_batches(batch, plans, in_step=self.weights_divided, least=0):
                computed.add(micro_batch, *self._forward(micro_batch))
        return collect(self._world, batch, rows, _shares(plans), computed)

    def take_reference(self) -> None:
        """Make the reference what the policy is now."""
        if self._reference is not None:
            self._reference.take()
        self.at_reference = True

    def reference_logprobs(
        self, batch: Batch, parts: Sequence[NDArray[np.int64]], *, whole_groups: Sequence[bool]
    ) -> list[SequenceLogprobs]:
        """Log-probs under the reference of each part's rows.

        Raises:
            ServiceFailed: no reference is kept: `algorithm.reference` is batch.

        """
        if self._reference is None:
            raise ServiceFailed("a reference is kept only where algorithm.reference is not batch; set it")
        with self._reference.in_place():
            return [
                self.logprobs(batch, rows, whole_groups=whole) for rows, whole in zip(parts, whole_groups, strict=True)
            ]

    def backward(
        self,
        batch: Batch,
        rows: NDArray[np.int64],
        coefficient_N: NDArray[np.float64],
        value_coefficient_N: NDArray[np.float64] | None = None,
    ) -> SequenceLogprobs:
        """Accumulate the gradient of Σ coefficient · logp + Σ value_coefficient · value over the tokens of `rows`.

        Raises:
            ServiceFailed: coefficients of values where there is no value head: `algorithm.name` is not ppo.

        """
        if value_coefficient_N is not None and not self._has_values:
            raise ServiceFailed("a value head is kept only where algorithm.name is ppo; set it")

        def loss(part: MicroBatch, logp_n: torch.Tensor, value_n: torch.Tensor | None, _: Computed) -> torch.Tensor:
            places_n = batch.places(part.rows)
            found = self._weighed(logp_n, coefficient_N[places_n])
            if value_n is None:
                return found
            # Also without coefficients: the head has a gradient wherever the policy has one.
            return found + self._weighed(
                value_n, None if value_coefficient_N is None else value_coefficient_N[places_n]
            )

        return self._accumulate(batch, rows, loss, whole_groups=False)

    def one_pass(self, batch: Batch, rows: NDArray[np.int64], coefficients: Coefficients) -> SequenceLogprobs:
        """Accumulate the gradient of Σ coefficient · logp of whole groups, each coefficient made of these log-probs."""

        def loss(part: MicroBatch, logp_n: torch.Tensor, _: torch.Tensor | None, computed: Computed) -> torch.Tensor:
            return self._weighed(logp_n, coefficients(part.rows, computed.of(part.rows)) if len(part.rows) else None)

        return self._accumulate(batch, rows, loss, whole_groups=True)

    def _accumulate(
        self, batch: Batch, rows: NDArray[np.int64], loss: _Loss, *, whole_groups: bool
    ) -> SequenceLogprobs:
        """Forward, loss and backward of every micro-batch; the log-probs that came of it."""
        self._engine.train()
        in_step = self.config.learner.zero_stage >= 2  # gradients are reduced in every backward pass
        plans = self._divide(batch, rows, whole_groups=whole_groups)
        computed = Computed(self._has_values)
        for micro_batch in self._micro_batches(batch, plans, in_step=in_step, least=1):
            logp_n, entropy_n, value_n = self._forward(micro_batch)
            computed.add(micro_batch, logp_n, entropy_n, value_n)
            self._engine.set_gradient_accumulation_boundary(False)
            self._engine.backward(loss(micro_batch, logp_n, value_n, computed))
        self._dirty = True
        return collect(self._world, batch, rows, _shares(plans), computed)

    def _weighed(self, output_n: torch.Tensor, coefficient_n: NDArray[np.float64] | None) -> torch.Tensor:
        """Σ coefficient · output; 0, with a gradient of 0, without coefficients or for a placeholder."""
        if coefficient_n is None or not len(coefficient_n):
            return (output_n * 0.0).sum()
        # DeepSpeed averages over the ranks; the loss is normalised by the step's own count already.
        weight_n = torch.as_tensor(coefficient_n * self._world.ranks, device=output_n.device)
        return (output_n * weight_n.to(output_n.dtype)).sum()

    def step(self) -> StepOutcome:
        """Apply the accumulated gradient, unless it is not finite."""
        rate = self._set_learning_rate()
        if not self._dirty:  # every coefficient was zero: nothing to learn from
            return StepOutcome(0.0, applied=True, learning_rate=rate)
        self._engine.set_gradient_accumulation_boundary(True)
        self._gradients.reduce()
        norm = self._global_norm()
        if not np.isfinite(norm):
            self.discard_gradient()
            return StepOutcome(norm, applied=False, learning_rate=rate)
        self._clip(norm)
        self._engine.step()
        self._schedule_steps += 1
        self._dirty = False
        self.at_reference = False
        return StepOutcome(norm, applied=True, learning_rate=rate)

    def discard_gradient(self) -> None:
        """Clear the accumulated gradient without a step."""
        self._gradients.clear()
        self._dirty = False

    def reset_optimizer(self, *, warm_up: bool) -> None:
        """Make the optimizer as freshly built around the current weights; the schedule too, if it is to `warm_up`."""
        self.discard_gradient()
        self._gradients.rebuild_state()
        if warm_up:
            self._schedule_steps = 0

    def probe(self, token_ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """Log-probs at temperature 1 of tokens 1…T-1."""
        ids = torch.as_tensor(token_ids.astype(np.int64), device=self._engine.device)
        column_N = torch.arange(len(token_ids) - 1, device=ids.device)
        self._engine.eval()
        with torch.no_grad():
            logp_N, *_ = self._engine(ids[None], torch.zeros_like(column_N), column_N, ids[1:], temperature=1.0)
        result: NDArray[np.float32] = logp_N.float().cpu().numpy()
        return result

    def manifest(self) -> list[TensorMeta]:
        """Names, dtypes and whole shapes of `named_tensors`, in its order."""
        return [
            TensorMeta(name, str(p.dtype).removeprefix("torch."), tuple(getattr(p, "ds_shape", p.shape)))
            for name, p in published_parameters(self._policy).items()
        ]

    def named_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """The policy's tensors under their checkpoint names, tied ones once; of adapters, theirs alone."""
        for names in self.portions():
            yield from self.whole_tensors(names)

    def portions(self) -> list[list[str]]:
        """Names of the tensors to gather at a time: as many as a publication sends at a time."""
        buckets = plan_buckets(self.manifest(), self.config.publication.bucket_bytes)
        return [[tensor.name for tensor in bucket.tensors] for bucket in buckets]

    def whole_tensors(self, names: Sequence[str]) -> list[tuple[str, torch.Tensor]]:
        """Some tensors, whole on rank 0; when it returns there, no exchange among the ranks is left open."""
        parameters = published_parameters(self._policy)
        chosen = [parameters[name] for name in names]
        if not self.weights_divided:
            return [(name, p.detach()) for name, p in zip(names, chosen, strict=True)]
        import deepspeed

        with deepspeed.zero.GatheredParameters(chosen):
            if self._world.rank > 0:
                return []
            return [(name, p.detach().clone()) for name, p in zip(names, chosen, strict=True)]

    def save(self, directory: Path) -> None:
        """Write model, optimizer, schedule and random state; when it returns, every rank's files are there."""
        client_state = {
            "schedule_steps": self._schedule_steps,
            "at_reference": self.at_reference,
            "torch_rng": torch.get_rng_state(),
        }
        self._engine.save_checkpoint(
            str(directory), tag=STATE_TAG, client_state=client_state, exclude_frozen_parameters=True
        )
        if self._reference is not None:
            self._reference.save(directory)
        if self._world.rank == 0:
            write_layout(self.config, directory)
        self._world.barrier()

    def load(self, directory: Path) -> None:
        """Read what `save` wrote; raises as `check_layout` does."""
        self.check_layout(directory)
        _, client_state = self._engine.load_checkpoint(str(directory), tag=STATE_TAG)
        self._schedule_steps = int(client_state["schedule_steps"])
        self.at_reference = bool(client_state["at_reference"])
        torch.set_rng_state(client_state["torch_rng"])
        if self._reference is not None and not self._reference.load(directory):
            self.take_reference()  # the run so far had the batch's own policy for a reference
        self.discard_gradient()

    def export(self, directory: Path) -> None:
        """Write the policy in Hugging Face format, tokenizer included."""
        self.write_export(directory, self.named_tensors())

    def write_export(self, directory: Path, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Write an export from whole tensors; rank 0 alone, with room for the model in its memory."""
        export_policy(self._policy, self.config.model, directory, tensors)

    def describe(self) -> Mapping[str, Any]:
        """Parameters, dtype, device, how they are divided and what computes log-probs."""
        return {
            "parameters": sum(getattr(p, "ds_numel", p.numel()) for p in self._policy.parameters()),
            "device": str(self._engine.device),
            "logprob_kernel": str(self._engine.module.kernel),
            **layout(self.config),
        }

    def close(self) -> None:
        """Let go of the other ranks and of DeepSpeed's memory."""
        self._engine.destroy()

    def check_layout(self, directory: Path) -> None:
        """Whether these ranks can continue from what `save` wrote; raises as `layout.check_layout`."""
        check_layout(self.config, directory)

    def _divide(self, batch: Batch, rows: NDArray[np.int64], *, whole_groups: bool) -> list[Plan]:
        """Every rank's micro-batches."""
        return divide(
            batch.tokens_B,
            rows,
            ranks=self._world.ranks,
            max_tokens=self.config.learner.microbatch_tokens,
            group_size=batch.group_size if whole_groups else 1,
        )

    def _micro_batches(self, batch: Batch, plans: Sequence[Plan], *, in_step: bool, least: int) -> Iterator[MicroBatch]:
        """This rank's micro-batches, and placeholders until it has `least`, or as many as any rank if `in_step`."""
        mine = plans[self._world.rank]
        passes = max(least, *map(len, plans)) if in_step else max(least, len(mine))
        for part in mine:
            yield pad(batch, part, self._pad_token_id)
        for _ in range(passes - len(mine)):
            yield placeholder(self._pad_token_id)

    def _forward(self, micro_batch: MicroBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        arrays = (
            micro_batch.input_ids_bL,
            micro_batch.row_N,
            micro_batch.column_N,
            micro_batch.target_N,
        )
        tensors = [torch.as_tensor(array, device=self._engine.device) for array in arrays]
        logp_N, entropy_N, value_N = self._engine(*tensors)
        return logp_N, entropy_N, value_N

    def _global_norm(self) -> float:
        """Of the whole reduced gradient, the same bits on every rank: all of them step, or none."""
        norm = float(torch.nn.utils.get_total_norm(self._gradients.parts()))
        return self._world.total(norm**2) ** 0.5 if self._gradients.partitioned else self._world.of_first(norm)

    def _clip(self, norm: float) -> None:
        limit = self.config.learner.max_grad_norm
        if limit and norm + CLIP_EPSILON > limit:
            torch._foreach_mul_(self._gradients.parts(), limit / (norm + CLIP_EPSILON))

    def _set_learning_rate(self) -> float:
        settings = self.config.learner
        warm = min(1.0, (self._schedule_steps + 1) / settings.warmup_steps) if settings.warmup_steps else 1.0
        policy, *value_head = self._engine.optimizer.param_groups
        policy["lr"] = settings.learning_rate * warm
        for group in value_head:
            group["lr"] = settings.learning_rate * warm * self.config.algorithm.value_learning_rate_factor
        return settings.learning_rate * warm


def _shares(plans: Sequence[Plan]) -> list[NDArray[np.int64]]:
    """Each rank's rows."""
    nothing = np.zeros(0, dtype=np.int64)
    return [np.concatenate([nothing, *plan]) for plan in plans]


def _reference(config: RunConfig, policy: Any, world: World) -> ReferenceSnapshot | None:
    """Where the reference is not the policy at each batch's start; trained parameters only."""
    if config.algorithm.name != "pacs" or config.algorithm.reference == "batch":
        return None
    parameters = {name: p for name, p in policy.named_parameters() if p.requires_grad}
    return ReferenceSnapshot(
        parameters,
        rank=world.rank,
        ranks=world.ranks,
        divided=config.learner.zero_stage == 3,
        offload=config.reset.offload,
    )
