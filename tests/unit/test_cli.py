"""Bad input, as a user meets it: one sentence on stderr, exit code 2, before anything heavy starts."""

import json
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pacs.local.ports import free_port, free_ports
from pacs.local.redis_server import EmbeddedRedis
from pacs.runtime.config_file import load_config

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "arithmetic.yaml"


def pacs(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    code = "import sys; from pacs.cli import main; sys.argv[0] = 'pacs'; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=cwd, timeout=60, check=False
    )


def refused(*overrides: str) -> str:
    """Run the example with overrides; returns the one sentence it is refused with."""
    named = {override.split("=")[0] for override in overrides}
    keys = [key for key in load_config(EXAMPLE).ports if key not in named]
    ports = [f"{key}={port}" for key, port in zip(keys, free_ports(len(keys)), strict=True)]
    began = time.monotonic()
    done = pacs("run", str(EXAMPLE), *(f"--set={o}" for o in (*ports, *overrides)))
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert time.monotonic() - began < 30
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    return lines[0]


def test_help_names_every_command_without_heavy_imports():
    done = pacs("--help")
    assert done.returncode == 0
    services = ("control", "rollout", "verifier", "learner")
    for command in ("run", "status", "ledger", "reset", "stop", "export", "doctor", "verify", *services):
        assert command in done.stdout


def test_unknown_key_is_named():
    assert "rollout.group_sizee" in refused("rollout.group_sizee=4")


def test_group_of_one_with_rloo_names_both_keys():
    said = refused("rollout.group_size=1")
    assert "rollout.group_size" in said
    assert "algorithm.score" in said


def test_missing_data_file_is_named():
    assert "/nowhere/problems.jsonl" in refused("data.path=/nowhere/problems.jsonl")


def test_malformed_line_is_named_with_its_number(tmp_path):
    data = tmp_path / "broken.jsonl"
    data.write_text('{"prompt": "1+1=", "answer": "2"}\n{"prompt": "2+2=", "answer": \n')
    assert f"{data} line 2" in refused(f"data.path={data}")


def test_model_without_tokenizer_is_refused(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(ROOT / "examples/models/tiny-arithmetic", model)
    for path in model.glob("tokenizer*"):
        path.unlink()
    assert "tokenizer" in refused(f"model.path={model}")


def test_port_in_use_is_named_with_its_key():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(f"control.http_port={port}")
    assert f"control.http_port={port}" in said


@pytest.mark.redis
def test_evicting_redis_is_refused(tmp_path):
    server = EmbeddedRedis(tmp_path / "redis", free_port())
    server.start()
    try:
        _configure(server, "maxmemory-policy", "allkeys-lru")
        assert "noeviction" in refused(f"redis.url={server.url}")
    finally:
        server.stop()


def _configure(server: EmbeddedRedis, key: str, value: str) -> None:
    from redis import Redis

    client = Redis.from_url(server.url)
    client.config_set(key, value)
    client.close()


def test_missing_configuration_is_named():
    done = pacs("run", "nowhere.yaml")
    assert done.returncode == 2
    assert "nowhere.yaml" in done.stderr


def test_questions_about_no_run_say_so(tmp_path):
    for question in ("status", "ledger", "stop"):
        done = pacs(question, cwd=tmp_path)
        assert done.returncode == 2
        assert "there must be a run" in done.stderr


@pytest.mark.parametrize(
    ("environment", "named"),
    [({}, "PACS_REDIS_URL"), ({"PACS_REDIS_URL": "redis://127.0.0.1:1"}, "PACS_TOKEN")],
)
def test_service_without_its_surroundings_says_so(environment, named):
    done = subprocess.run(
        [sys.executable, "-m", "services.verifier", str(EXAMPLE)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
        env={"PATH": "/usr/bin:/bin", **environment},
    )
    assert done.returncode == 2, done.stderr
    assert named in done.stderr
    assert "Traceback" not in done.stderr


def test_stored_ledger_of_a_killed_run_is_read_from_its_redis_file(tmp_path):
    """A run whose `pacs run` was killed left no ledger.json, but its append-only file knows."""
    import asyncio

    from redis.asyncio import Redis

    from pacs.local.workspace import Workspace
    from pacs.runtime.config_file import load_config
    from pacs.transport.redis_streams import RedisStreams

    config = load_config(EXAMPLE, [f"run.directory={tmp_path}", f"control.http_port={free_port()}"])
    workspace = Workspace(config.run.path)
    with workspace.prepared(config, fresh=False):
        server = EmbeddedRedis(workspace.redis_directory, free_port())
        server.start()

        async def admit() -> None:
            client = Redis.from_url(server.url)
            streams = RedisStreams(client, config.run.name)
            await streams.prepare()
            for sequence in range(3):
                await streams.admit(sequence, b"prompt")
            await client.aclose()

        asyncio.run(admit())
        server.stop()
    done = pacs("ledger", "--json", "--run", str(workspace.path))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"admitted": 3, "trained": 0, "dropped": {}, "in_flight": 3}
