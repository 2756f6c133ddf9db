"""How DeepSpeed is told to train: one optimizer, no arithmetic of its own on the loss or the gradient's norm."""

import warnings
from typing import Any

from pacs.runtime.config import RunConfig

__all__ = ["initialize"]

BUCKET_ELEMENTS = 50_000_000  # reduced or prefetched at a time; DeepSpeed's own 500 M take 2 GB of buffer in float32
PERSISTENT_ELEMENTS = 100_000  # stage 3 leaves smaller parameters whole: a gather costs more than they do


def initialize(module: Any, config: RunConfig) -> Any:
    """Wrap a torch module, the `policy` and perhaps a `value_head`, in a DeepSpeed engine; collective.

    The optimizer has a group of parameters for either: their learning rates differ.
    """
    import deepspeed
    import torch

    # DeepSpeed calls some collectives by the names they had before this torch.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    # Otherwise DeepSpeed compiles an operator for minutes that is slower here.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    settings = config.learner
    optimizer = torch.optim.AdamW(
        _parameter_groups(module),
        lr=settings.learning_rate,
        betas=settings.adam_betas,
        weight_decay=settings.weight_decay,
    )
    engine, *_ = deepspeed.initialize(
        model=module,
        optimizer=optimizer,
        dist_init_required=False,
        config=_options(config),
    )
    return engine


def _parameter_groups(module: Any) -> list[dict[str, Any]]:
    parts = [part for part in (module.policy, module.value_head) if part is not None]
    return [{"params": [p for p in part.parameters() if p.requires_grad]} for part in parts]


def _options(config: RunConfig) -> dict[str, Any]:
    bfloat16 = config.model.dtype == "bfloat16"
    stage = config.learner.zero_stage
    return {
        "train_micro_batch_size_per_gpu": 1,  # ours vary; DeepSpeed only counts with this
        "gradient_accumulation_steps": 1,  # the loss is normalised by us
        "gradient_clipping": 0.0,  # ours is the same at every stage
        "zero_allow_untested_optimizer": True,
        # Stage 0 in bfloat16 would add gradients up in bfloat16 and begin with Adam's step counter at 1.
        "zero_optimization": {
            "stage": max(1, stage) if bfloat16 else stage,
            "reduce_bucket_size": BUCKET_ELEMENTS,
            "allgather_bucket_size": BUCKET_ELEMENTS,
            "stage3_prefetch_bucket_size": BUCKET_ELEMENTS,
            "stage3_param_persistence_threshold": PERSISTENT_ELEMENTS,
        },
        "bf16": {"enabled": bfloat16, "immediate_grad_update": True},
        "data_types": {"grad_accum_dtype": "fp32"},  # micro-batches and ranks add up without rounding to bfloat16
        "communication_data_type": "fp32",
        "steps_per_print": 10**9,
    }
