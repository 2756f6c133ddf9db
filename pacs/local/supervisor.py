"""A whole run on one machine: `pacs run`.

Dataflow: this process starts Redis and the four services, reads control over HTTP twice a second, shows it, and keeps
the history. It takes no part in training; it can be killed without losing a group.
"""

import contextlib
import json
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from pacs.errors import BadInput, DeadlineExceeded, ServiceFailed
from pacs.local.control_client import ControlClient
from pacs.local.live_view import LiveView
from pacs.local.redis_server import EmbeddedRedis
from pacs.local.services import Services
from pacs.local.summary import summarise, write_json_atomically
from pacs.local.workspace import Workspace
from pacs.runtime.config import RunConfig
from pacs.runtime.process import EXIT_BAD_INPUT

__all__ = ["Interrupted", "run_locally"]

POLL_SECONDS = 0.5
SILENT_SECONDS = 60.0  # control answers in milliseconds; once it answered it must go on

History = list[Mapping[str, Any]]


class Interrupted(Exception):  # it is no error
    """The user asked to stop."""


def run_locally(config: RunConfig, fresh: bool) -> Mapping[str, Any]:
    """Run to the end and report; returns the summary.

    Args:
        config: checked by `preflight.check`.
        fresh: begin anew where an earlier run of this name would be continued.

    Raises:
        BadInput: a service found the input wrong; its own sentence.
        ServiceFailed: a service ended or the run cannot go on; what was reached is on disk.
        Interrupted: Ctrl-C or SIGTERM; everything is stopped.

    """
    started_at = time.time()
    config = with_absolute_paths(config)
    workspace = Workspace(config.run.path)
    with workspace.prepared(config, fresh), LiveView() as view, _interrupts():
        return _Supervisor(config, workspace, view, started_at).run()


class _Supervisor:
    def __init__(self, config: RunConfig, workspace: Workspace, view: LiveView, started_at: float) -> None:
        self._config = config
        self._workspace = workspace
        self._view = view
        self._started_at = started_at
        self._control = ControlClient(config.control.http_port, workspace.token)
        self._history: History = read_history(workspace.history_file)
        self._run: Mapping[str, Any] = {}

    def run(self) -> Mapping[str, Any]:
        with self._redis() as url:
            environment = {"PACS_REDIS_URL": url, "PACS_TOKEN_FILE": str(self._workspace.token_file)}
            services = Services(self._workspace, environment)
            self._view.note(f"starting control, verifier, rollout and learner; logs in {self._workspace.log_directory}")
            services.start()
            try:
                self._watch(services)
                self._view.note("the run is over: stopping the services")
            finally:
                for name in services.stop():
                    self._view.note(f"{name} did not stop in time and was killed")
                self._control.close()
                summary = self._write_summary()
        return self._report(summary)

    @contextlib.contextmanager
    def _redis(self) -> Iterator[str]:
        if self._config.redis.url is not None:
            yield self._config.redis.url
            return
        server = EmbeddedRedis(self._workspace.redis_directory, self._config.redis.port)
        self._view.note(f"starting Redis on port {self._config.redis.port}")
        server.start()
        try:
            yield server.url
        finally:
            server.stop()

    def _watch(self, services: Services) -> None:
        """Follow the run until it is finished or was asked to stop."""
        last_answer = time.monotonic()
        while True:
            run = self._control.run()
            if run is not None:
                last_answer, self._run = time.monotonic(), run
                self._keep_history()
                self._view.update(run, self._history)
                if run["state"] == "finished":
                    return
                if run["failure"]:
                    raise ServiceFailed(f"control: {run['failure']}")
            elif self._run and time.monotonic() - last_answer > SILENT_SECONDS:
                raise DeadlineExceeded("control to answer", SILENT_SECONDS)
            if (ended := services.ended()) is not None:
                name, code = ended
                if run is not None and run["state"] == "stopping" and code == 0:
                    return
                if code == EXIT_BAD_INPUT:
                    raise BadInput(services.last_words(name).rpartition("error: ")[2])
                raise ServiceFailed(
                    f"{name} ended with exit code {code}; nothing is lost: the same command continues the run. "
                    f"The end of {services.log(name)}:\n{services.last_words(name)}"
                )
            time.sleep(POLL_SECONDS)

    def _keep_history(self) -> None:
        new = self._control.history(len(self._history))
        if new:
            with self._workspace.history_file.open("a") as file:
                file.writelines(json.dumps(entry) + "\n" for entry in new)
            self._history += new

    def _write_summary(self) -> dict[str, Any]:
        ledger = self._run.get("ledger", {})
        summary = summarise(
            self._history, ledger, started_at=self._started_at, tokens_generated=self._run.get("tokens_generated")
        )
        state = self._run.get("state", "starting")
        known = {"run": self._config.run.name, "state": "stopped" if state == "stopping" else state}
        summary = {**known, **summary, "problems": self._run.get("problems")}
        if self._run:
            write_json_atomically(self._workspace.ledger_file, ledger)
            write_json_atomically(self._workspace.summary_file, summary)
        return summary

    def _report(self, summary: Mapping[str, Any]) -> Mapping[str, Any]:
        from pacs.local.report import write_report

        self._view.note("drawing the report")
        write_report(self._workspace.path, self._history, summary)
        return summary


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """The configuration with every path absolute, so that it means the same to whoever reads it later."""

    def absolute(path: Path | None) -> Path | None:
        return None if path is None else path.resolve()

    data = {"path": absolute(config.data.path), "heldout_path": absolute(config.data.heldout_path)}
    return config.model_copy(
        update={
            "run": config.run.model_copy(update={"directory": config.run.directory.resolve()}),
            "model": config.model.model_copy(update={"path": config.model.path.resolve()}),
            "data": config.data.model_copy(update=data),
        }
    )


def read_history(path: Path) -> History:
    """What an earlier start of this run has kept."""
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


@contextlib.contextmanager
def _interrupts() -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into `Interrupted`; more of them are ignored while stopping."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise Interrupted

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
