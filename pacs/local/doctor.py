"""`pacs doctor`: everything a run needs on this machine, tried one by one, in one table."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pacs.data.problems import load_problems
from pacs.errors import BadInput, DeadlineExceeded, PacsError, ServiceFailed
from pacs.local import preflight
from pacs.local.ports import free_port
from pacs.local.redis_server import EmbeddedRedis, find_server
from pacs.local.supervisor import with_absolute_paths
from pacs.runtime.config import RunConfig
from pacs.runtime.config_file import write_config

__all__ = ["Check", "checks", "diagnose"]

SHARED_MEMORY = "/dev/shm"  # noqa: S108  # it is asked for its size only
SMALLEST_SHM_BYTES = 64 * 2**20  # Docker's default; gloo, Ray and vLLM share memory there
PROBE_TEXT = "What is 12+34? It is 46."
PROBE_SECONDS = 600.0


@dataclass(frozen=True)
class Check:
    """One thing to try.

    Args:
        look: returns what it found; raises PacsError with what is wrong.

    """

    name: str
    look: Callable[[], str]


def diagnose(config: RunConfig, console: Console) -> bool:
    """Try everything and print a table; returns whether all is well."""
    table = Table(title=f"pacs doctor: {config.run.name}")
    for column in ("check", "result", "what was found"):
        table.add_column(column, overflow="fold")
    sound = True
    with tempfile.TemporaryDirectory(prefix="pacs-doctor-") as folder:
        for check in checks(with_absolute_paths(config), Path(folder)):
            console.print(f"checking {check.name} …", style="dim")
            try:
                table.add_row(check.name, "[green]ok[/green]", check.look())
            except PacsError as error:
                sound = False
                table.add_row(check.name, "[red]wrong[/red]", str(error))
    console.print(table)
    return sound


def checks(config: RunConfig, folder: Path) -> Sequence[Check]:
    """All checks, the quick ones first."""
    return (
        Check("ports", lambda: _ports(config)),
        Check(SHARED_MEMORY, _shared_memory),
        Check("Redis", lambda: _redis(config, folder)),
        Check("model folder", lambda: _model(config)),
        Check("tokenizer, EOS, chat template", lambda: _tokenizer(config)),
        Check("data", lambda: _data(config)),
        Check("checker process, sandbox", lambda: _verifier(config, folder)),
        Check("engine and learner agree", lambda: _parity(config, folder)),
    )


def _ports(config: RunConfig) -> str:
    preflight.check_ports(config)
    return ", ".join(str(port) for port in config.ports.values()) + " are free"


def _shared_memory() -> str:
    free = shutil.disk_usage(SHARED_MEMORY).free
    if free < SMALLEST_SHM_BYTES:
        raise BadInput(
            f"{SHARED_MEMORY} must have {SMALLEST_SHM_BYTES >> 20} MiB free, got {free >> 20} MiB; "
            "in Docker set shm_size, in Kubernetes mount an emptyDir with medium: Memory"
        )
    return f"{free >> 20} MiB free"


def _redis(config: RunConfig, folder: Path) -> str:
    if config.redis.url is not None:
        preflight.check_redis(config.redis.url)
        return "redis.url answers, appends and does not evict"
    server = EmbeddedRedis(folder / "redis", free_port())
    server.start()
    try:
        preflight.check_redis(server.url)
    finally:
        server.stop()
    return f"{find_server()} starts, appends and does not evict"


def _model(config: RunConfig) -> str:
    preflight.check_model_directory(config.model.path)
    return str(config.model.path)


def _tokenizer(config: RunConfig) -> str:
    from pacs.data.chat_tokenizer import ChatTokenizer

    tokenizer = ChatTokenizer(config.model.path)
    if tokenizer.eos_token is None:
        raise BadInput(
            f"the tokenizer must name an EOS token, got none in {config.model.path}; no response would ever end"
        )
    template = "a chat template" if tokenizer.has_chat_template else "no chat template: prompts go in bare"
    return f"EOS {tokenizer.eos_token!r}, {template}"


def _data(config: RunConfig) -> str:
    training, heldout = load_problems(config.data, config.run.seed)
    return f"{len(training)} problems to train on, {len(heldout)} held out"


def _verifier(config: RunConfig, folder: Path) -> str:
    """A check that needs a worker process, and the sandbox's own self-test."""
    write_config(config, folder / "config.yaml")
    found = _probe("verifier", folder / "config.yaml", None)
    if found["math"] != "ok":
        raise ServiceFailed(f"a checker process must find 2√2 equal to √8, got status {found['math']}")
    return f"a checker process judges, the sandbox reached isolation {found['sandbox']}"


def _parity(config: RunConfig, folder: Path) -> str:
    from pacs.data.chat_tokenizer import ChatTokenizer

    ids = ChatTokenizer(config.model.path)([{"role": "user", "content": PROBE_TEXT}])[: config.model.max_tokens - 1]
    write_config(config, folder / "config.yaml")
    engine, learner = (_probe(side, folder / "config.yaml", ids.tolist()) for side in ("rollout", "learner"))
    gap = max(abs(a - b) for a, b in zip(engine, learner, strict=True))
    if not gap <= config.logprob_tolerance:
        raise ServiceFailed(
            f"engine and learner must agree on log-probs within {config.logprob_tolerance:g} nats, got {gap:.3g}; "
            "PACS sums them unclipped, so training on this would learn noise"
        )
    return f"largest log-prob difference {gap:.2g} nats over {len(engine)} tokens (limit {config.logprob_tolerance:g})"


def _probe(service: str, config_path: Path, question: object) -> Any:
    """Ask a service's probe, in a process of its own; returns its answer."""
    command = [sys.executable, "-m", f"services.{service}.probe", str(config_path)]
    try:
        done = subprocess.run(
            command, input=json.dumps(question), capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DeadlineExceeded(f"the {service}'s probe", PROBE_SECONDS) from error
    if done.returncode != 0:
        last = " | ".join(done.stderr.strip().splitlines()[-3:])
        raise ServiceFailed(f"the {service}'s probe failed: {last}")
    return json.loads(done.stdout.strip().splitlines()[-1])
