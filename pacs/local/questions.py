"""What one asks of a run, live or finished: `pacs status`, `pacs ledger`, `pacs stop`."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.table import Table

from pacs.errors import BadInput
from pacs.local.control_client import ControlClient
from pacs.local.ports import free_port
from pacs.local.redis_server import EmbeddedRedis
from pacs.local.workspace import Workspace
from pacs.runtime.config import RunConfig
from pacs.runtime.config_file import load_config

__all__ = ["ledger_table", "read_ledger", "reset_run", "status_table", "stop_run"]


def read_ledger(workspace: Workspace) -> Mapping[str, Any]:
    """The ledger: from control while the run lives, else from the run's own Redis file, else as last written.

    Raises:
        BadInput: the run never admitted anything.

    """
    config = _config(workspace)
    with _control(workspace, config) as control:
        if (live := control.ledger()) is not None:
            return live
    if config.redis.url is None and (workspace.redis_directory / "redis.conf").exists():
        return _stored_ledger(workspace, config)
    if workspace.ledger_file.is_file():
        written: Mapping[str, Any] = json.loads(workspace.ledger_file.read_text())
        return written
    raise BadInput(f"a ledger needs a run that has begun, got none in {workspace.path}")


def _stored_ledger(workspace: Workspace, config: RunConfig) -> Mapping[str, Any]:
    """Load the run's append-only file for a moment."""
    server = EmbeddedRedis(workspace.redis_directory, free_port())
    server.start()
    try:
        return asyncio.run(_ledger_at(server.url, config.run.name))
    finally:
        server.stop()


async def _ledger_at(url: str, run: str) -> Mapping[str, Any]:
    from redis.asyncio import Redis

    from pacs.transport.redis_streams import RedisStreams

    client = Redis.from_url(url)
    try:
        found = await RedisStreams(client, run).ledger()
    finally:
        await client.aclose()
    return {
        "admitted": found.admitted,
        "trained": found.trained,
        "dropped": dict(found.dropped),
        "in_flight": found.in_flight,
    }


def ledger_table(ledger: Mapping[str, Any]) -> Table:
    """The ledger as a table, with the sum that must hold."""
    table = Table(title="ledger")
    table.add_column("groups")
    table.add_column("count", justify="right")
    table.add_row("admitted", str(ledger["admitted"]))
    table.add_row("trained", str(ledger["trained"]))
    for reason, groups in ledger["dropped"].items():
        table.add_row(f"dropped: {reason}", str(groups))
    table.add_row("in flight", str(ledger["in_flight"]))
    rest = ledger["admitted"] - ledger["trained"] - sum(ledger["dropped"].values()) - ledger["in_flight"]
    table.caption = "balances" if rest == 0 else f"does not balance: {rest} groups unaccounted for"
    return table


def status_table(workspace: Workspace) -> Table:
    """A run's state as a table; of a run that is down, what it wrote last."""
    config = _config(workspace)
    with _control(workspace, config) as control:
        run = control.run()
    if run is None:
        return _last_summary(workspace)
    table = Table(title=f"run {config.run.name}: {run['state']}")
    table.add_column("what")
    table.add_column("value")
    accuracy = run["heldout_accuracy"]
    rows = {
        "step": f"{run['step']} of {run['max_steps']}",
        "policy version": run["policy_version"],
        "held-out accuracy": "not measured yet" if accuracy is None else f"{accuracy:.3f}",
        "waiting for": run["waiting_for"] or "nothing",
        **{f"queue {name}": groups for name, groups in run["queues"].items()},
        **{
            agent["agent_id"]: agent["fenced_error"] or f"heard {agent['heartbeat_age_seconds']} s ago"
            for agent in run["agents"]
        },
    }
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table


def stop_run(workspace: Workspace) -> str:
    """Ask a live run to end; returns what to tell the user.

    Raises:
        BadInput: the run is not live.

    """
    with _control(workspace, _config(workspace)) as control:
        if not control.stop():
            raise BadInput(f"only a live run can be stopped, but control of {workspace.path} does not answer")
    return f"{workspace.path.name} saves a checkpoint and ends; `pacs run` with the same file continues it"


def reset_run(workspace: Workspace) -> str:
    """Ask a live run to replace its reference by the policy; returns what to tell the user.

    Raises:
        BadInput: the run is not live, or its reference is not one that is kept.

    """
    with _control(workspace, _config(workspace)) as control:
        epoch = control.reset()
    if epoch is None:
        raise BadInput(f"only a live run can be reset, but control of {workspace.path} does not answer")
    return f"reset {epoch} follows the batch in hand"


def _last_summary(workspace: Workspace) -> Table:
    if not workspace.summary_file.is_file():
        raise BadInput(f"the run in {workspace.path} is down and has written no summary yet")
    summary = json.loads(workspace.summary_file.read_text())
    table = Table(title=f"run {workspace.path.name}: not running, last state {summary.get('state')}")
    table.add_column("what")
    table.add_column("value")
    for name, value in summary.items():
        table.add_row(name, str(value))
    return table


def _config(workspace: Workspace) -> RunConfig:
    if not workspace.config_file.is_file():
        raise BadInput(f"a run's folder must hold its config.yaml, got none in {workspace.path}; give --run FOLDER")
    return load_config(workspace.config_file)


@contextmanager
def _control(workspace: Workspace, config: RunConfig) -> Iterator[ControlClient]:
    client = ControlClient(config.control.http_port, workspace.token)
    try:
        yield client
    finally:
        client.close()
