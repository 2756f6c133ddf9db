"""The folder of a run: what lies where, and that only one process works in it."""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

from pydantic import BaseModel

from pacs.errors import BadInput
from pacs.runtime.config import RunConfig
from pacs.runtime.config_file import load_config, write_config

__all__ = ["Workspace", "newest_run"]

# What the groups and the checkpoints of a run were made with: changed, they would mean something else.
FIXED = ("run.seed", "run.groups_per_step", "rollout.group_size", "rollout.temperature", "model", "data")


class Workspace:
    """One run's folder.

    Args:
        path: the folder; made by `prepare`.

    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self.config_file = self.path / "config.yaml"
        self.token_file = self.path / "token"
        self.redis_directory = self.path / "redis"
        self.log_directory = self.path / "logs"
        self.history_file = self.path / "metrics.jsonl"
        self.summary_file = self.path / "summary.json"
        self.ledger_file = self.path / "ledger.json"
        self.export_directory = self.path / "export"

    @property
    def token(self) -> str:
        """The run's bearer token.

        Raises:
            BadInput: the folder holds none.

        """
        if not self.token_file.is_file():
            raise BadInput(f"a run's folder must hold its token, got none in {self.path}; give the folder of a run")
        return self.token_file.read_text().strip()

    @contextmanager
    def prepared(self, config: RunConfig, fresh: bool) -> Iterator[None]:
        """Make the folder and hold its lock while inside.

        Args:
            config: written into the folder in full, with absolute paths.
            fresh: remove what an earlier run of this name left.

        Raises:
            BadInput: another process works in the folder, or what is there was begun as a different run.

        """
        self.path.mkdir(parents=True, exist_ok=True)
        with self._locked():
            if fresh:
                self._clear()
            self._refuse_another_run(config)
            self.log_directory.mkdir(exist_ok=True)
            write_config(config, self.config_file)
            if not self.token_file.exists():
                descriptor = os.open(self.token_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(descriptor, "w") as file:
                    file.write(secrets.token_urlsafe(32))
            yield

    def _refuse_another_run(self, config: RunConfig) -> None:
        """What is continued must be the run that was begun."""
        if not self.config_file.is_file():
            return
        before = load_config(self.config_file)
        for key in FIXED:
            old, new = (attrgetter(key)(c) for c in (before, config))
            if old != new:
                raise BadInput(
                    f"a run is continued with the {key} it was begun with, got {key}={_brief(new)} where "
                    f"{self.path} has {_brief(old)}; give --fresh to begin anew or set run.name to something else"
                )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.path / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BadInput(
                    f"a run may be worked on by one process, but another one holds {self.path}; "
                    "stop it with `pacs stop`, or set run.name to something else"
                ) from None
            yield

    def _clear(self) -> None:
        for entry in self.path.iterdir():
            if entry.name == "lock":
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def _brief(value: object) -> str:
    return str(value) if not isinstance(value, BaseModel) else value.model_dump_json(exclude_defaults=True)


def newest_run(runs: Path) -> Workspace:
    """The run whose folder was started last.

    Raises:
        BadInput: there is none.

    """
    started = list(runs.glob("*/config.yaml"))
    if not started:
        raise BadInput(f"there must be a run, got none in {runs.resolve()}; name its folder with --run")
    return Workspace(max(started, key=lambda path: path.stat().st_mtime).parent)
