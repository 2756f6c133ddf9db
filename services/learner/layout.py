"""How an engine's state on disk is divided, and whether a run can continue from it."""

import json
from pathlib import Path
from typing import Any

from pacs.errors import BadInput, CheckpointDamaged
from pacs.runtime.config import RunConfig
from services.learner.lora import adapter_layout, check_same_adapters

__all__ = ["STATE_TAG", "check_layout", "layout", "write_layout"]

STATE_TAG = "state"  # DeepSpeed's folder
LAYOUT_FILE = "engine.json"


def layout(config: RunConfig) -> dict[str, Any]:
    """What must be the same to continue."""
    settings = config.learner
    found: dict[str, Any] = {
        "dtype": config.model.dtype,
        "ranks": settings.ranks,
        "zero_stage": settings.zero_stage,
    }
    if config.algorithm.name == "ppo":
        found["value_head"] = True
    return {**found, **adapter_layout(config.model)}


def write_layout(config: RunConfig, directory: Path) -> None:
    """Say it in a checkpoint."""
    (directory / LAYOUT_FILE).write_text(json.dumps(layout(config), indent=1))


def check_layout(config: RunConfig, directory: Path) -> None:
    """Whether the ranks of a run can continue from a checkpoint.

    Raises:
        BadInput: nothing was written there, or by other ranks or at another stage, and cannot be divided anew.
        CheckpointDamaged: it cannot be read.

    """
    if not (directory / STATE_TAG).is_dir():
        raise BadInput(f"DeepSpeed finds no checkpoint in {directory}; remove the folder to use the one before it")
    try:
        written = json.loads((directory / LAYOUT_FILE).read_text())
    except (OSError, ValueError) as error:
        raise CheckpointDamaged(
            f"the learner's part of {directory} cannot be read: {error}; remove the folder to use the one before it"
        ) from error
    present = layout(config)
    check_same_adapters(written.pop("lora", None), present.pop("lora", None), directory)
    if (present["dtype"], present["zero_stage"]) == ("float32", 0):
        written = {**written, "ranks": present["ranks"]}  # every rank has all of it
    if written != present:
        raise BadInput(
            f"a checkpoint is continued with the settings it was written with, got {present} where {directory} "
            f"has {written}: every rank keeps its part of the optimizer in a file of its own; set learner.ranks, "
            "learner.zero_stage, model.dtype and algorithm.name back, or export the checkpoint with them and start "
            "a new run from the export"
        )
