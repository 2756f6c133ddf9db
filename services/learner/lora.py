"""The edge to peft: low-rank adapters inside the policy, and what is done with them instead of with its weights.

The adapters are injected into the model's own linear layers, so that the model stays what it was to everybody else.
There is no dropout: two passes over one policy must give the same log-probs.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch  # noqa: TID253  # this file wraps peft's modules

from pacs.algo import merge_lora
from pacs.errors import BadInput
from pacs.runtime.base_model import adapters_of
from pacs.runtime.config import LoraSection, ModelSection
from pacs.transport.manifest import adapter_pair

__all__ = [
    "adapter_layout",
    "add_adapters",
    "check_same_adapters",
    "export_merged",
    "keep_frozen_out",
    "published_parameters",
]

ADAPTER_FOLDER = "adapter"  # of an export
ADAPTER_FILE = "adapter_model.safetensors"  # peft's name of it
PEFT_PREFIX = "base_model.model."  # of every name in that file
INJECTED = re.compile(r"\.(lora_[AB])\.default\.weight$")  # peft has a name for each of many adapters; ours is alone


def add_adapters(policy: Any, lora: LoraSection) -> None:
    """Freeze the policy and put adapters beside its linear layers; with B = 0 they change nothing yet.

    Raises:
        BadInput: a name in `lora.target_modules` is that of no linear layer, or of the head.

    """
    from peft import inject_adapter_in_model

    linear = _linear_layers(policy)
    targets = lora.target_modules or sorted(linear)
    unknown = sorted(set(targets) - linear)
    if unknown or not targets:
        raise BadInput(
            f"model.lora.target_modules must be of the model's linear layers {sorted(linear)}, got {unknown}; "
            "leave it empty for all of them"
        )
    inject_adapter_in_model(_peft_config(lora, targets), policy)


def published_parameters(policy: Any) -> dict[str, Any]:
    """The parameters that are published and exported: the adapters' under their names in peft's files, or all."""
    parameters = dict(policy.named_parameters())
    adapters = {INJECTED.sub(r".\1.weight", name): p for name, p in parameters.items() if INJECTED.search(name)}
    return adapters or parameters


def keep_frozen_out(module: torch.nn.Module) -> None:
    """Leave frozen parameters out of the module's state, tied ones under both names, and do not miss them in one."""
    frozen = {name for name, p in module.named_parameters(remove_duplicate=False) if not p.requires_grad}

    def leave_out(_module: Any, state: dict[str, Any], prefix: str, _local: Any) -> None:
        for name in frozen:
            state.pop(prefix + name, None)

    def do_not_miss(_module: Any, incompatible: Any) -> None:
        incompatible.missing_keys[:] = [name for name in incompatible.missing_keys if name not in frozen]

    module.register_state_dict_post_hook(leave_out)  # type: ignore[no-untyped-call]  # torch's
    module.register_load_state_dict_post_hook(do_not_miss)  # type: ignore[no-untyped-call]


def adapter_layout(model: ModelSection) -> dict[str, Any]:
    """What a checkpoint must say of its adapters and of the base that it does not hold; empty without adapters."""
    adapters = adapters_of(model)
    return {"lora": {**asdict(adapters), "target_modules": model.lora.target_modules}} if adapters else {}


def check_same_adapters(written: Mapping[str, Any] | None, present: Mapping[str, Any] | None, path: Path) -> None:
    """Refuse to continue a checkpoint with other adapters, over another base, or with and without adapters.

    Raises:
        BadInput: with both.

    """
    if written != present:
        raise BadInput(
            "a checkpoint of adapters is continued with the same adapters over the same base, one of weights without "
            f"any, got model.lora={dict(present or {}) or 'off'} where {path} has {dict(written or {}) or 'off'}; "
            "set model.lora and model.path back, or export the checkpoint with them and start a new run from the export"
        )


def export_merged(model: ModelSection, directory: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write the base with the adapters merged as a model of its own, and the adapters for peft in `adapter/`.

    Args:
        model: settings of the run.
        directory: to write into.
        tensors: the adapters, whole, under their published names.

    """
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM

    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    base = AutoModelForCausalLM.from_pretrained(
        str(model.path), dtype=getattr(torch, model.dtype), local_files_only=True
    )
    targets = set()
    for name, weight in base.named_parameters():
        a_name, b_name = adapter_pair(name)
        if a_name in on_cpu:
            merged = merge_lora(weight.detach(), on_cpu[a_name], on_cpu[b_name], model.lora.alpha / model.lora.rank)
            weight.data.copy_(merged)
            targets.add(name.split(".")[-2])
    base.save_pretrained(str(directory))
    folder = directory / ADAPTER_FOLDER
    folder.mkdir()
    _peft_config(model.lora, sorted(targets), str(model.path)).save_pretrained(str(folder))
    save_file({PEFT_PREFIX + name: tensor for name, tensor in on_cpu.items()}, folder / ADAPTER_FILE)


def _linear_layers(policy: Any) -> set[str]:
    """Last parts of the names of all linear layers but the head."""
    head = policy.get_output_embeddings()
    return {
        name.rpartition(".")[2]
        for name, module in policy.named_modules()
        if type(module) is torch.nn.Linear and module is not head
    }


def _peft_config(lora: LoraSection, targets: list[str], base: str | None = None) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=0.0,
        bias="none",
        target_modules=targets,
        task_type="CAUSAL_LM",
        base_model_name_or_path=base,
    )
