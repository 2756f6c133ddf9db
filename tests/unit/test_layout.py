"""The boundaries that keep the parts apart: import directions, heavy imports, exported names, the services' shape."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVICES = ("control", "rollout", "verifier", "learner")
INNER_SHAPE = ("__init__.py", "__main__.py", "settings.py", "handler.py", "metrics.py")

# What a package may import of ours. Nobody imports a service but itself; pacs never imports services.
ALLOWED = {
    "pacs.algo": {"pacs.algo"},
    "pacs.wire": {"pacs.wire", "pacs.pb", "pacs.errors"},
    "pacs.transport": {"pacs.transport", "pacs.errors"},
    "pacs.data": {"pacs.data", "pacs.errors", "pacs.runtime"},
    "pacs.runtime": {"pacs.runtime", "pacs.transport", "pacs.wire", "pacs.pb", "pacs.errors"},
    "pacs.local": {"pacs.local", "pacs.data", "pacs.runtime", "pacs.transport", "pacs.wire", "pacs.errors"},
    **{
        f"services.{name}": {
            f"services.{name}", "pacs.algo", "pacs.data", "pacs.errors", "pacs.pb", "pacs.runtime",
            "pacs.transport", "pacs.wire",
        }
        for name in SERVICES
    },
}  # fmt: skip

HEAVY = {
    "torch", "vllm", "ray", "deepspeed", "transformers", "peft", "sympy", "math_verify", "reasoning_gym", "matplotlib",
    "liger_kernel", "triton",
}  # fmt: skip
EDGE_FILES = {  # the one place of each heavy library that may import it at module level
    "pacs/transport/broadcast.py": {"torch"},
    "pacs/transport/weights.py": {"torch"},
    "pacs/local/report.py": {"matplotlib"},
    "services/learner/computed.py": {"torch"},
    "services/learner/deepspeed_engine.py": {"torch"},
    "services/learner/policy.py": {"torch"},
    "services/learner/lora.py": {"torch"},
    "services/learner/reference.py": {"torch"},
    "services/learner/value_head.py": {"torch"},
    "services/learner/world.py": {"torch"},
    "services/learner/zero.py": {"torch"},
    "services/rollout/ray_serve.py": {"ray"},
    "services/rollout/weight_transfer.py": {"torch", "vllm"},
    "services/verifier/checkers/reasoning_gym_worker.py": {"reasoning_gym"},
    "services/verifier/checkers/symbolic.py": {"math_verify", "sympy"},
}
LIGHT_ENTRY_POINTS = ("pacs.cli", "services.verifier.grade", *(f"services.{name}.__main__" for name in SERVICES))


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package.replace(".", "/")).rglob("*.py"))


def imported_modules(path: Path, *, module_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text())
    nodes = _module_level(tree) if module_level_only else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _module_level(tree: ast.Module):
    """Statements that run at import, those in `if TYPE_CHECKING` aside."""
    pending = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        yield node
        pending += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_go_in_the_allowed_direction(package):
    strays = []
    for path in sources(package):
        for module in imported_modules(path):
            ours = module.split(".")[0] in ("pacs", "services") and module not in ("pacs", "services")
            if ours and not any(module == a or module.startswith(f"{a}.") for a in ALLOWED[package]):
                strays.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not strays


@pytest.mark.parametrize("package", ["pacs", "services"])
def test_heavy_libraries_are_imported_at_module_level_in_their_edge_files_only(package):
    strays = []
    for path in sources(package):
        name = str(path.relative_to(ROOT))
        if name.startswith("pacs/algo/"):  # tensors are what it computes on
            continue
        heavy = {m.split(".")[0] for m in imported_modules(path, module_level_only=True)} & HEAVY
        if heavy - EDGE_FILES.get(name, set()):
            strays.append(f"{name}: {sorted(heavy)}")
    assert not strays


def test_edge_files_exist():
    assert [name for name in EDGE_FILES if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("module", LIGHT_ENTRY_POINTS)
def test_entry_points_import_without_heavy_libraries(module):
    code = f"import sys, {module}; print(*sorted(set({sorted(HEAVY)!r}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("service", SERVICES)
def test_services_have_the_same_inner_shape(service):
    missing = [name for name in INNER_SHAPE if not (ROOT / "services" / service / name).is_file()]
    assert missing == []


@pytest.mark.parametrize("service", SERVICES)
def test_handlers_know_no_transport_and_no_heavy_library(service):
    forbidden = {"redis", "ray", "vllm", "deepspeed", "grpc", "fastapi", "pacs.transport.redis_streams"}
    assert imported_modules(ROOT / "services" / service / "handler.py") & forbidden == set()


def _public_modules() -> list[str]:
    skipped = ("__main__", "_pb2", "worker")  # entry points, generated code, and processes that talk over pipes
    modules = []
    for path in [*sources("pacs"), *sources("services")]:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        if not any(part in name for part in skipped) and str(path.relative_to(ROOT)) not in EDGE_FILES:
            modules.append(name)
    return modules


@pytest.mark.parametrize("module", _public_modules())
def test_exported_names_exist_and_are_documented(module):
    loaded = importlib.import_module(module)
    for name in getattr(loaded, "__all__", ()):
        assert hasattr(loaded, name), f"{module}.__all__ names {name}, which does not exist"
        value = getattr(loaded, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, f"{module}.{name} has no docstring"


def test_every_public_module_declares_its_names():
    tools = {
        f"services.{name}.probe" for name in ("learner", "rollout", "verifier")
    }  # run as processes, imported by nobody
    packages = {m for m in _public_modules() if (ROOT / m.replace(".", "/")).is_dir()}
    silent = [
        m for m in _public_modules()
        if m not in tools | packages and not hasattr(importlib.import_module(m), "__all__")
    ]  # fmt: skip
    assert silent == []


def test_proto_is_no_python_package():
    assert list((ROOT / "proto").rglob("__init__.py")) == []
