"""How the zygote is started in each mode: its command line, its environment, and what it may see."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from services.verifier.sandbox.inside.view import DEVICES, LIBRARIES, LINKER_CACHE, TIME_ZONES
from services.verifier.sandbox.runs import RunLost

__all__ = ["Launch", "make_launch"]

ENVIRONMENT = {
    "PYTHONHASHSEED": "0",  # the same program does the same in every run
    "MALLOC_ARENA_MAX": "2",  # arenas of 64 MiB for every thread would use the address space up
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
PYTHON_OPTIONS = ("-s", "-S", "-P", "-B", "-X", "utf8")
PRELOAD = (
    "abc", "array", "bisect", "cmath", "collections", "contextlib", "copy", "dataclasses", "datetime", "decimal",
    "enum", "fractions", "functools", "hashlib", "heapq", "inspect", "io", "itertools", "json", "linecache", "math",
    "numbers", "operator", "pprint", "queue", "random", "re", "statistics", "string", "struct", "textwrap",
    "threading", "time", "tokenize", "traceback", "typing", "unicodedata",
)  # fmt: skip
"""What programs import most: a run inherits it. The rest of the standard library is imported when asked for."""

SEEN_CODE = "/pacs-sandbox"
CAP_KILL, CAP_SETGID, CAP_SETUID = 5, 6, 7
USER_INSIDE = "1000"
SCRATCH = ("--perms", "0755", "--size", str(1 << 20), "--tmpfs", "/tmp")  # noqa: S108  # the namespace's own
"""Some packages want a folder to write to when they are imported; by the time a program runs it is out of reach."""


@dataclass(frozen=True)
class Launch:
    """A zygote's command line and environment."""

    command: tuple[str, ...]
    environment: dict[str, str]


def make_launch(
    mode: str, socket: int, first_user: int, packages: tuple[Path, ...] = (), preload: tuple[str, ...] = ()
) -> Launch:
    """Write the command that starts a zygote.

    Args:
        mode: strong, landlock or weak.
        socket: descriptor it inherits.
        first_user: user id of the first slot, used where this process may change users.
        packages: folders programs may import from, beside the standard library.
        preload: modules of these that every run inherits.

    Raises:
        RunLost: bubblewrap, which mode strong needs, is not installed.

    """
    prefix = Path(sys.base_prefix).resolve()
    code = Path(__file__).resolve().parent / "inside"
    pool = _may_change_users()
    config = {
        "socket": socket,
        "locked": mode != "weak",
        "own_namespace": mode == "strong" and not pool,
        "first_user": first_user if pool else None,
        "keep_file_user": pool and mode != "strong" and not all(map(_readable_to_all, (prefix, *packages))),
        "folders": [f"{prefix}/lib", f"{prefix}/lib64", *LIBRARIES, TIME_ZONES, *map(str, packages)],
        "files": [LINKER_CACHE, *DEVICES],
        "packages": [str(folder) for folder in packages],
        "preload": list(PRELOAD),
        "preload_packages": list(preload),
    }
    python = [str(Path(sys._base_executable).resolve()), *PYTHON_OPTIONS]  # type: ignore[attr-defined]  # no venv's
    if mode != "strong":
        return Launch((*python, str(code / "__main__.py"), json.dumps(config)), ENVIRONMENT)
    seen = f"{SEEN_CODE}/services/verifier/sandbox/inside"
    scratch = SCRATCH if preload else ()
    view = [*scratch, *_view((prefix, *packages)), *_bind(str(code), seen)]  # Python itself may lie below /tmp
    return Launch(
        (*_bubblewrap(pool), *view, "--remount-ro", "/", "--", *python, f"{seen}/__main__.py", json.dumps(config)),
        ENVIRONMENT,
    )


def _bubblewrap(pool: bool) -> Iterator[str]:
    """Namespaces of its own; as root users are changed for every run, else there is a user namespace."""
    program = shutil.which("bwrap")
    if program is None:
        raise RunLost("bubblewrap (bwrap) is not installed")
    yield program
    yield from ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    yield from ("--die-with-parent", "--new-session", "--chdir", "/", "--cap-drop", "ALL")
    if pool:
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL"):
            yield from ("--cap-add", capability)
    else:
        yield from ("--unshare-user", "--uid", USER_INSIDE, "--gid", USER_INSIDE)


def _view(folders: tuple[Path, ...]) -> Iterator[str]:
    """Python, shared libraries, three devices: all there is to see, and all of it read-only."""
    for folder in folders:
        yield from _bind(str(folder), str(folder))
    for library in map(Path, LIBRARIES):
        if library.is_symlink():
            yield from ("--symlink", str(library.readlink()), str(library))
        elif library.is_dir():
            yield from _bind(str(library), str(library))
    for extra in (TIME_ZONES, LINKER_CACHE):
        if Path(extra).exists():
            yield from _bind(extra, extra)
    for device in DEVICES:
        yield from (*_parents(device), "--dev-bind", device, device)


def _bind(source: str, target: str) -> Iterator[str]:
    yield from (*_parents(target), "--ro-bind", source, target)


def _parents(path: str) -> Iterator[str]:
    """Folders on the way, readable to every user: bubblewrap would make them its own user's alone."""
    for parent in reversed(Path(path).parents[:-1]):
        yield from ("--perms", "0755", "--dir", str(parent))


def _may_change_users() -> bool:
    if os.geteuid() != 0:
        return False
    status = Path("/proc/self/status").read_text()
    capabilities = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    return all(capabilities >> number & 1 for number in (CAP_KILL, CAP_SETGID, CAP_SETUID))


def _readable_to_all(folder: Path) -> bool:
    return all(path.stat().st_mode & 0o001 for path in (folder, *folder.parents))
