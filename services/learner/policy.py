"""The edge to transformers: the policy's model, read, seen as a function of its responses, and written."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch  # noqa: TID253  # this file wraps its modules

from pacs.errors import BadInput
from pacs.runtime.config import ModelSection, RunConfig
from services.learner.logprob_kernel import LogprobKernel
from services.learner.lora import add_adapters, export_merged
from services.learner.value_head import ValueHead

__all__ = ["ResponseLogprobs", "export_policy", "load_policy"]

TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges*", "special_tokens*", "chat_template*", "added_tokens*")


class ResponseLogprobs(torch.nn.Module):
    """The policy seen as a function from padded rows to log-probs, entropies and values of their response tokens."""

    def __init__(
        self,
        policy: Any,
        value_head: ValueHead | None,
        kernel: LogprobKernel,
        temperature: float,
        chunk_tokens: int,
    ) -> None:
        super().__init__()
        self.policy = policy
        self.value_head = value_head
        self.kernel = kernel
        self._temperature = temperature
        self._chunk_tokens = chunk_tokens

    def forward(
        self,
        input_ids_bL: torch.Tensor,
        row_N: torch.Tensor,
        column_N: torch.Tensor,
        target_N: torch.Tensor,
        temperature: float | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Log-probs, entropies (nats) and values of N response tokens, given where each is predicted."""
        hidden_bLD = self.policy.get_decoder()(input_ids=input_ids_bL, use_cache=False).last_hidden_state
        hidden_ND = hidden_bLD[row_N, column_N]
        out = self.kernel.compute(
            hidden_ND,
            self.policy.get_output_embeddings().weight,
            target_N,
            temperature=self._temperature if temperature is None else temperature,
            chunk_tokens=self._chunk_tokens,
            with_entropy=True,
        )
        assert out.entropy_T is not None
        return out.logp_T, out.entropy_T, None if self.value_head is None else self.value_head(hidden_ND)


def load_policy(config: RunConfig) -> Any:
    """The model to train, with its adapters where there are any.

    Raises:
        BadInput: its folder cannot be read, or its head is of a kind whose log-probs we would get wrong.

    """
    from transformers import AutoConfig, AutoModelForCausalLM

    path, dtype = config.model.path, getattr(torch, config.model.dtype)
    try:
        without_dropout = _without_dropout(AutoConfig.from_pretrained(str(path), local_files_only=True))
        policy = AutoModelForCausalLM.from_pretrained(
            str(path), config=without_dropout, dtype=dtype, local_files_only=True
        )
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
    if config.model.lora.rank:
        add_adapters(policy, config.model.lora)
    if config.learner.gradient_checkpointing:
        policy.gradient_checkpointing_enable()
    return policy


def _without_dropout(model_config: Any) -> Any:
    """Two passes over one policy must give the same log-probs."""
    for part in {id(part): part for part in (model_config, model_config.get_text_config())}.values():
        for name, value in part.to_dict().items():
            if "drop" in name and isinstance(value, int | float):
                setattr(part, name, 0.0)
    return model_config


def export_policy(
    policy: Any, model: ModelSection, directory: Path, tensors: Iterable[tuple[str, torch.Tensor]]
) -> None:
    """Write a policy in Hugging Face format from its whole tensors, the tokenizer included."""
    if model.lora.rank:
        export_merged(model, directory, dict(tensors))
    else:
        parameters = {name for name, _ in policy.named_parameters(remove_duplicate=False)}
        state = {name: buffer for name, buffer in policy.state_dict().items() if name not in parameters}
        state.update((name, tensor.cpu()) for name, tensor in tensors)
        policy.save_pretrained(str(directory), state_dict=state)
    for pattern in TOKENIZER_FILES:
        for source in model.path.glob(pattern):
            shutil.copy2(source, directory / source.name)
