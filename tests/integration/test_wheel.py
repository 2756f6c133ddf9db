"""The wheel, installed elsewhere with control's and verifier's extras only: both import, and there is no torch."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

IMPORT_EVERYTHING = """
import importlib, importlib.util, pkgutil, sys
names = []
for package in ("pacs.data", "pacs.runtime", "pacs.transport", "pacs.wire", "services.control", "services.verifier"):
    module = importlib.import_module(package)
    names += [found.name for found in pkgutil.walk_packages(module.__path__, package + ".")]
edges_of_torch = {"pacs.transport.broadcast", "pacs.transport.weights"}
for name in sorted(set(names) - edges_of_torch):
    importlib.import_module(name)
assert importlib.util.find_spec("torch") is None, "torch was installed"
assert "site-packages" in importlib.import_module("services").__file__, "not the wheel's"
print(len(names), "modules")
"""


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A virtual environment with the wheel and two extras; the lock keeps versions."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    run("git", "clone", "--quiet", ROOT, source, cwd=folder)  # a build from the checkout would leave files in it
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source, cwd=folder)
    wheel = next(folder.glob("pacs_rlvr-*.whl"))
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    lock = ROOT / "requirements" / "cpu-py311.lock"
    run(python, "-m", "pip", "install", "--quiet", "-c", lock, f"{wheel}[control,verifier]", cwd=folder)
    return python


@pytest.mark.timeout(1200)
def test_control_and_verifier_import_without_torch(installed, tmp_path):
    assert "modules" in run(installed, "-c", IMPORT_EVERYTHING, cwd=tmp_path)


def test_wheel_carries_its_data_and_command(installed, tmp_path):
    script = "import importlib.resources as r; print(r.files('pacs.transport').joinpath('streams.lua').is_file())"
    assert run(installed, "-c", script, cwd=tmp_path).strip() == "True"
    assert "Commands" in run(installed.parent / "pacs", "--help", cwd=tmp_path)
