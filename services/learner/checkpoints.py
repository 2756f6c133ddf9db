"""Checkpoints as folders: written under a temporary name, made durable, then renamed. Without `.tmp` it is whole."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pacs.errors import CheckpointDamaged
from services.learner.trained import TrainedSequences

__all__ = ["CheckpointState", "Checkpoints"]

MARKER = "checkpoint.json"


@dataclass(frozen=True)
class CheckpointState:
    """What a checkpoint says beside the engine's own files.

    Args:
        step: batches trained.
        groups_trained: groups trained, in all.
        policy_version: version live when it was written.
        reference_epoch: resets so far.

    """

    step: int = 0
    groups_trained: int = 0
    policy_version: int = 0
    reference_epoch: int = 0
    trained: TrainedSequences = field(default_factory=TrainedSequences)


class Checkpoints:
    """The checkpoints of one run.

    Args:
        directory: holds them.
        keep: complete ones kept.

    """

    def __init__(self, directory: Path, keep: int) -> None:
        self._directory = directory
        self._keep = keep

    def save(self, state: CheckpointState, write_engine: Callable[[Path], None]) -> Path:
        """Write a checkpoint; when this returns it survives a power cut."""
        final = self._directory / f"step-{state.step:08d}"
        temporary = final.with_suffix(".tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        _make_durable(self._directory)
        temporary.mkdir()
        write_engine(temporary)
        (temporary / MARKER).write_text(json.dumps(_to_json(state), indent=1))
        _sync_tree(temporary)
        shutil.rmtree(final, ignore_errors=True)  # of an earlier life that was rolled back behind this step
        temporary.rename(final)
        _sync(self._directory)
        self._prune()
        return final

    def newest(self) -> tuple[Path, CheckpointState] | None:
        """The newest complete checkpoint, or None where there is none.

        Raises:
            CheckpointDamaged: it claims to be complete and cannot be read.

        """
        complete = self._complete()
        if not complete:
            return None
        path = complete[-1]
        try:
            return path, _from_json(json.loads((path / MARKER).read_text()))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointDamaged(
                f"{path} is named as complete but its {MARKER} cannot be read: {error}; "
                "remove the folder to continue from the one before it"
            ) from error

    def _complete(self) -> list[Path]:
        return sorted(path for path in self._directory.glob("step-*") if path.suffix != ".tmp")

    def _prune(self) -> None:
        for path in self._complete()[: -self._keep]:
            shutil.rmtree(path)


def _to_json(state: CheckpointState) -> dict[str, Any]:
    return {
        "step": state.step,
        "groups_trained": state.groups_trained,
        "policy_version": state.policy_version,
        "reference_epoch": state.reference_epoch,
        "trained": state.trained.to_json(),
    }


def _from_json(value: dict[str, Any]) -> CheckpointState:
    return CheckpointState(
        step=int(value["step"]),
        groups_trained=int(value["groups_trained"]),
        policy_version=int(value["policy_version"]),
        reference_epoch=int(value["reference_epoch"]),
        trained=TrainedSequences.from_json(value["trained"]),
    )


def _make_durable(directory: Path) -> None:
    """Make a folder and what is missing above it; a new folder's name is kept by the one that holds it."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    for path in missing:
        _sync(path.parent)


def _sync_tree(directory: Path) -> None:
    for path in directory.rglob("*"):
        _sync(path)
    _sync(directory)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
