"""The weights in a model's folder: which files hold them, and a fingerprint by which two machines compare theirs.

With adapters the base is never sent: every participant reads it from its own disk.
"""

import hashlib
import json
from pathlib import Path

from pacs.errors import BadInput
from pacs.runtime.config import ModelSection
from pacs.transport.manifest import Adapters

__all__ = ["adapters_of", "fingerprint", "weight_files"]

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
BLOCK_BYTES = 4096
BLOCKS = 256  # of each file: training changes every tensor, so any one of them would show it


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that hold the model, in the order of their names.

    Raises:
        BadInput: there are none, or not all that the index names.

    """
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    try:
        index = json.loads((folder / INDEX_FILE).read_text())
        files = [folder / name for name in sorted(set(index["weight_map"].values()))]
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise BadInput(
            f"adapters need a base in safetensors format, {SINGLE_FILE} or what {INDEX_FILE} names, got neither in "
            f"{folder}: {error}; save the model anew with save_pretrained"
        ) from error
    missing = [file.name for file in files if not file.is_file()]
    if missing or not files:
        raise BadInput(f"{INDEX_FILE} in {folder} must name files that are there, missing: {missing}")
    return files


def fingerprint(folder: Path) -> str:
    """SHA-256 over the sizes of the weight files and blocks spread evenly over each of them, its head included.

    Files that are divided otherwise have another fingerprint, even around the same weights.

    Raises:
        BadInput: see `weight_files`.

    """
    joined = hashlib.sha256()
    for path in weight_files(folder):
        size = path.stat().st_size
        joined.update(f"{size};".encode())
        with path.open("rb") as file:
            for offset in sorted({block * size // BLOCKS for block in range(BLOCKS)}):
                file.seek(offset)
                joined.update(file.read(BLOCK_BYTES))
    return joined.hexdigest()


def adapters_of(model: ModelSection) -> Adapters | None:
    """What this process takes the adapters for; None where all weights are trained.

    Raises:
        BadInput: see `weight_files`.

    """
    if not model.lora.rank:
        return None
    return Adapters(model.lora.rank, model.lora.alpha, fingerprint(model.path))
