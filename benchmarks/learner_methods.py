"""The ways to take an optimizer step that `benchmarks/learner.py` compares; each is handed groups by a `Server`."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch  # noqa: TID253
import torch.nn.functional as F  # noqa: TID253

from pacs.algo import pacs_loss
from pacs.testing import make_config
from services.learner.batches import Batch, make_batch, pad
from services.learner.plans import divide, padded_length

RATE = 1e-6


class Server(Protocol):
    """Asks for optimizer steps, one after the other."""

    groups: list[Any]

    def next_step(self) -> bool:
        """Wait to be asked; False: no more."""

    def done(self) -> None:
        """The step is taken."""


class Method(Protocol):
    """A way to take optimizer steps."""

    clock: "Clock"

    def serve(self, server: Server) -> None:
        """Take a step whenever the server asks for one."""

    def parts(self, batch: Batch) -> list[np.ndarray]:
        """Rows of each micro-batch."""

    def width(self, tokens_B: np.ndarray) -> np.ndarray:
        """Tokens that rows of these lengths are padded to, at least."""

    def chosen(self, batch: Batch) -> bool | None:
        """Whether the learner would go this way itself; None where it has no choice."""


class Clock:
    """Seconds by name; a part within a part counts for itself alone."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner: list[float] = []

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        _synchronize()
        self._inner.append(0.0)
        began = time.perf_counter()
        yield
        _synchronize()
        elapsed = time.perf_counter() - began
        self.seconds[name] = self.seconds.get(name, 0.0) + elapsed - self._inner.pop()
        if self._inner:
            self._inner[-1] += elapsed

    def around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            with self.part(name):
                return function(*args, **options)

        return timed


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class WholeGroups:
    """The published way: a group is one micro-batch, padded to its longest, and all of its logits exist at once."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from transformers import AutoModelForCausalLM

        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = getattr(torch, spec["dtype"])
        self.model = AutoModelForCausalLM.from_pretrained(spec["model"], dtype=dtype).to(self.device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, weight_decay=0.0)
        self.clock = Clock()

    def serve(self, server: Server) -> None:
        while server.next_step():
            self._step(make_batch(server.groups))
            server.done()

    def _step(self, batch: Batch) -> None:
        for rows in self.parts(batch):
            self._group(batch, rows).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def parts(self, batch: Batch) -> list[np.ndarray]:
        return list(np.arange(len(batch)).reshape(-1, batch.group_size))

    width = staticmethod(lambda tokens_B: tokens_B)
    chosen = staticmethod(lambda batch: None)

    def _group(self, batch: Batch, rows: np.ndarray) -> torch.Tensor:
        part = pad(batch, rows, 0)
        longest = int(batch.tokens_B[rows].max())  # it pads no further
        ids_GL = torch.from_numpy(part.input_ids_bL[:, :longest]).to(self.device)
        tokens_G = torch.from_numpy(batch.tokens_B[rows]).to(self.device)
        inside_GL = (torch.arange(ids_GL.shape[1], device=self.device) < tokens_G[:, None]).long()
        logits_GLV = self.model(input_ids=ids_GL, attention_mask=inside_GL, use_cache=False).logits[:, :-1].float()
        logp_GL = -F.cross_entropy(logits_GLV.flatten(0, 1), ids_GL[:, 1:].flatten(), reduction="none").view(
            len(rows), -1
        )
        response_GL = torch.zeros_like(logp_GL)
        response_GL[part.row_N, part.column_N] = 1.0
        logp_G = (logp_GL * response_GL).sum(-1)
        labels = (torch.from_numpy(array[rows]).to(self.device) for array in (batch.label_B, batch.valid_B))
        return pacs_loss(logp_G, logp_G.detach(), *labels, group_size=len(rows), count=len(batch)).loss


class Pacs:
    """This project's learner: `LearnerHandler` on a `DeepSpeedEngine`, timed in parts."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from services.learner import deepspeed_engine, handler

        self.config = make_config(
            {
                "model.path": spec["model"],
                "model.dtype": spec["dtype"],
                "model.max_tokens": 4096,
                "rollout.group_size": spec["group_size"],
                "rollout.max_sequences": 4096,
                "run.groups_per_step": spec["sequences"] // spec["group_size"],
                "algorithm.log_ratio": "log_ratio" if spec["method"] == "pacs" else "mean_logprob",
                "learner.microbatch_tokens": spec["microbatch_tokens"],
                "learner.threads": spec["threads"],
                "learner.learning_rate": RATE,
                "learner.logprob_kernel": "torch",  # whose parts are timed
            }
        )
        self.clock = Clock()
        self.engine = deepspeed_engine.DeepSpeedEngine.start(self.config)
        self._time_parts(deepspeed_engine)
        self._name, self._whole = spec["method"], spec["method"] == "pacs, one pass"
        self._costs_less = handler.one_pass_costs_less
        handler.one_pass_costs_less = lambda *_, **__: self._whole  # whether or not it would choose so itself
        self._handler = handler.LearnerHandler(self.config, self.engine)

    def serve(self, server: Server) -> None:
        while server.next_step():
            self._handler.train(server.groups, 1)
            server.done()

    def parts(self, batch: Batch) -> list[np.ndarray]:
        group_size, max_tokens = batch.group_size if self._whole else 1, self.config.learner.microbatch_tokens
        (plan,) = divide(batch.tokens_B, np.arange(len(batch)), ranks=1, max_tokens=max_tokens, group_size=group_size)
        return plan

    def chosen(self, batch: Batch) -> bool | None:
        if self._name == "pacs":
            return None
        rows, max_tokens = np.arange(len(batch)), self.config.learner.microbatch_tokens
        options = {"group_size": batch.group_size, "max_tokens": max_tokens, "ranks": 1}
        less = self._costs_less(batch.tokens_B, rows, rows, **options, recomputed=False, passes_before=0)
        return less == self._whole

    width = staticmethod(padded_length)

    def _time_parts(self, module: Any) -> None:
        from pacs.algo.token_logprobs import _ChunkedLogprobs
        from services.learner import logprob_kernel

        engine, around = self.engine, self.clock.around
        decoder = engine._policy.get_decoder()
        decoder.forward = around("model, forward", decoder.forward)
        forward = around("head and log-probs, forward", logprob_kernel.token_logprobs)
        logprob_kernel.token_logprobs = forward
        head_backward = _ChunkedLogprobs.backward
        _ChunkedLogprobs.backward = staticmethod(around("head and log-probs, backward", head_backward))
        engine._engine.backward = around("model, backward", engine._engine.backward)
        engine.step = around("optimizer", engine.step)
        module.pad = around("padding and gathering", module.pad)
        module.collect = around("padding and gathering", module.collect)


class Trl:
    """TRL's GRPOTrainer as it is, but for its samples, which are given: `train()`, with one optimizer step a batch."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        self.clock, method, rows = Clock(), self, min(spec["trl_rows"], spec["sequences"])

        class Given(GRPOTrainer):
            def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
                return _trl_batch(make_batch(method.server.groups), self.accelerator.device)

        args = GRPOConfig(
            output_dir=str(Path(spec["folder"]) / "trl"),
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=spec["sequences"] // rows,
            num_generations=spec["group_size"],
            max_completion_length=max(spec["lengths"]),
            learning_rate=RATE,
            weight_decay=0.0,
            lr_scheduler_type="constant",
            gradient_checkpointing=False,  # nobody here recomputes activations
            bf16=spec["dtype"] == "bfloat16",
            use_cpu=not torch.cuda.is_available(),
            max_steps=10**6,
            save_strategy="no",
            logging_strategy="no",
            report_to="none",
            disable_tqdm=True,
            model_init_kwargs={"dtype": spec["dtype"]},
        )
        self._trainer = Given(
            model=spec["model"],
            reward_funcs=lambda completions, **_: [0.0] * len(completions),
            args=args,
            train_dataset=Dataset.from_dict({"prompt": ["given"] * spec["sequences"]}),
        )

    def parts(self, batch: Batch) -> list[np.ndarray]:
        return [np.arange(len(batch))]  # padded as a whole, and divided afterwards

    width = staticmethod(lambda tokens_B: tokens_B)
    chosen = staticmethod(lambda batch: None)

    def serve(self, server: Server) -> None:
        from transformers import TrainerCallback

        class Asked(TrainerCallback):
            def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                if not server.next_step():
                    raise StopIteration

            def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
                server.done()

        self.server = server
        self._trainer.add_callback(Asked())
        with contextlib.suppress(StopIteration):
            self._trainer.train()


def _trl_batch(batch: Batch, device: Any) -> dict[str, torch.Tensor]:
    """What TRL makes of its samples: prompts and completions apart, each padded to the longest of all."""
    prompt, longest = int(batch.prompt_tokens_B[0]), int(batch.response_tokens_B.max())
    completion_BL = torch.zeros(len(batch), longest, dtype=torch.int64)
    mask_BL = torch.zeros_like(completion_BL)
    for row, ids in enumerate(batch.token_ids_B):
        completion_BL[row, : len(ids) - prompt] = torch.from_numpy(ids[prompt:].astype(np.int64))
        mask_BL[row, : len(ids) - prompt] = 1
    reward_PG = torch.from_numpy(batch.label_B).view(-1, batch.group_size)
    advantage_PG = (reward_PG - reward_PG.mean(1, keepdim=True)) / (reward_PG.std(1, keepdim=True) + 1e-4)
    prompt_BL = torch.from_numpy(np.stack([ids[:prompt] for ids in batch.token_ids_B]).astype(np.int64))
    tensors = {
        "prompt_ids": prompt_BL,
        "prompt_mask": torch.ones_like(prompt_BL),
        "completion_ids": completion_BL,
        "completion_mask": mask_BL,
        "advantages": advantage_PG.flatten(),
        "num_items_in_batch": mask_BL.sum(),
    }
    return {name: tensor.to(device) for name, tensor in tensors.items()}


METHODS: dict[str, Callable[[dict[str, Any]], Method]] = {
    "whole groups": WholeGroups,
    "pacs": Pacs,
    "pacs, two passes": Pacs,
    "pacs, one pass": Pacs,
    "TRL": Trl,
}
