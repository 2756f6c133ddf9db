"""The documents say what is there: links resolve, files and commands named exist, metrics and settings are complete."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry

from pacs.cli import app
from pacs.runtime.config_file import load_config
from services.control.metrics import ControlMetrics
from services.learner.metrics import LearnerMetrics
from services.rollout.metrics import RolloutMetrics
from services.verifier.metrics import VerifierMetrics

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
RUNBOOK = ROOT / "docs" / "operations" / "runbook.md"
COMPOSE = ROOT / "docker-compose.yml"
SERVICES = ("control", "rollout", "verifier", "learner")

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
SOURCE_FILE = re.compile(r"`((?:pacs|services|tests|proto)/[\w/.]+\.\w+)`")
COMMAND = re.compile(r"(?:^|`)(?:OMP_NUM_THREADS=1 )?pacs ([a-z]+)", re.MULTILINE)
VERB = re.compile(r"(?:^|`)make ([a-z-]+)", re.MULTILINE)


def anchors_of(page):
    """What GitHub makes of a page's headings."""
    titles = HEADING.findall(FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def name_of(page):
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_resolve(page):
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text())):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_source_files_named_exist(page):
    assert [name for name in SOURCE_FILE.findall(page.read_text()) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_verbs_exist(page):
    text = page.read_text()
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    verbs = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(COMMAND.findall(text)) <= commands
    assert set(VERB.findall(text)) <= verbs


def test_overview_follows_the_group_through_all_services():
    path = (ROOT / "docs" / "overview.md").read_text().partition("## The path of a group")[2].partition("\n## ")[0]
    named = SOURCE_FILE.findall(path)
    assert len(named) > 30
    assert len(set(named)) == len(named), "a group passes every file of the table once"
    for package in ("pacs/data/", "pacs/transport/", "pacs/algo/", *(f"services/{name}/" for name in SERVICES)):
        assert any(name.startswith(package) for name in named), package


def test_configuration_page_is_fresh():
    script = ROOT / "scripts" / "write_configuration_doc.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_every_metric_is_in_the_runbook():
    registry = CollectorRegistry()
    ControlMetrics(registry, "r")
    RolloutMetrics(registry, "r", "0")
    VerifierMetrics(registry, "r")
    LearnerMetrics(registry, "r", max_staleness=1)
    emitted = {m.name + ("_total" if m.type == "counter" else "") for m in registry.collect()}
    listed = set(re.findall(r"`(pacs_\w+)`", RUNBOOK.read_text().partition("\n## Metrics")[2]))
    assert listed == emitted


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load(COMPOSE.read_text())


def test_compose_has_redis_and_the_four_services(compose):
    assert set(compose["services"]) == {"redis", *SERVICES}
    for name, service in compose["services"].items():
        assert service["profiles"] == ["cpu"], name
        assert service["healthcheck"]["test"], name
        assert "stop_grace_period" in service, name


def test_compose_reaches_the_services_at_the_ports_of_the_example(compose):
    config = load_config(ROOT / "examples" / "arithmetic.yaml")
    probed = {
        "control": config.control.http_port,
        "rollout": config.rollout.metrics_port,
        "verifier": config.verifier.metrics_port,
        "learner": config.learner.metrics_port,
    }
    for name, port in probed.items():
        assert f"127.0.0.1:{port}/" in compose["services"][name]["healthcheck"]["test"][-1]
    addresses = compose["x-environment"]
    assert addresses["PACS_CONTROL_ADDRESS"] == f"control:{config.control.grpc_port}"
    assert addresses["PACS_VERIFIER_ADDRESS"] == f"verifier:{config.verifier.grpc_port}"


def test_compose_keeps_redis_from_losing_groups_and_secrets_in_files(compose):
    (command,) = compose["services"]["redis"]["command"]
    assert "appendonly yes" in command.splitlines()
    assert "maxmemory-policy noeviction" in command.splitlines()
    assert all(list(secret) == ["file"] for secret in compose["secrets"].values())


@pytest.mark.parametrize("name", SERVICES)
def test_compose_builds_every_service_from_a_stage_that_exists(compose, name):
    build = compose["services"][name]["build"]
    dockerfile = (ROOT / build["dockerfile"]).read_text()
    assert f" AS {build['target']}\n" in dockerfile
    assert "# syntax=" not in dockerfile
