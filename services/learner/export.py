"""The trained policy in Hugging Face format: at the end of a run, or from its newest checkpoint at any time.

`python -m services.learner.export CONFIG DIRECTORY`
"""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from pacs.errors import BadInput
from pacs.runtime.config_file import load_config
from pacs.runtime.process import configure_logging, exit_code_of

__all__ = ["export_newest", "write_export"]


def write_export(export: Callable[[Path], None], directory: Path) -> None:
    """Write an export beside its place and swap it in, so that a reader never sees half of one."""
    temporary = directory.with_name(f"{directory.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    export(temporary)
    shutil.rmtree(directory, ignore_errors=True)
    temporary.rename(directory)


def export_newest(config_path: Path, directory: Path) -> Path:
    """Export a run's newest checkpoint; returns the checkpoint.

    Raises:
        BadInput: the run has no checkpoint.

    """
    from services.learner.checkpoints import Checkpoints
    from services.learner.ranks import open_engine

    config = load_config(config_path)
    found = Checkpoints(config.run.path / "checkpoints", config.learner.keep_checkpoints).newest()
    if found is None:
        raise BadInput(f"an export needs a checkpoint, got none in {config.run.path}; train at least one batch first")
    with open_engine(config) as engine:
        engine.load(found[0])
        write_export(engine.export, directory)
    return found[0]


def _main() -> None:
    if len(sys.argv) != 3:
        raise BadInput("usage: python -m services.learner.export CONFIG DIRECTORY")
    export_newest(Path(sys.argv[1]), Path(sys.argv[2]))


if __name__ == "__main__":
    configure_logging("export")
    raise SystemExit(exit_code_of(_main))
