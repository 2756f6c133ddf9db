"""The surroundings the sandbox is tried in: root, an ordinary user, and both of them in a container."""

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CASES = ROOT / "tests" / "cases" / "sandbox.jsonl"
UNPRIVILEGED = 1000

BIND_THEN_RUN = """
set -e
mount --make-rprivate /
for pair in "$1=$2/python" "$3=$2/site" "$4=$2/repository"; do mount --bind "${pair%%=*}" "${pair#*=}"; done
shift 4
exec "$@"
"""


@dataclass(frozen=True)
class World:
    """Where a command is run.

    Args:
        name: for people.
        user: user id.
        container: whether namespaces are denied.

    """

    name: str
    user: int
    container: bool = False


WORLDS = {
    world.name: world
    for world in (
        World("root", 0),
        World("user", UNPRIVILEGED),
        World("container-root", 0, container=True),
        World("container-user", UNPRIVILEGED, container=True),
    )
}


def why_not(world: World, isolation: str) -> str:
    """Why the combination cannot be tried here; empty where it can."""
    if os.geteuid() != 0:
        return "needs root, to become other users and to bind folders"
    if isolation == "strong" and shutil.which("bwrap") is None:
        return "needs bubblewrap: apt-get install bubblewrap"
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        return f"needs mount namespaces: {probe.stderr.strip()}"
    return "emulates x86-64 containers only" if world.container and os.uname().machine != "x86_64" else ""


@contextlib.contextmanager
def command_in(world: World, module: str, *arguments: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Command and environment that run one of our modules there, with Python, packages and repository readable."""
    place = Path(tempfile.mkdtemp(prefix="pacs-world-", dir="/tmp"))
    try:
        place.chmod(0o755)
        for name in ("python", "site", "repository"):
            (place / name).mkdir(mode=0o755)
        python = str(place / "python" / "bin" / f"python3.{sys.version_info.minor}")
        run = [python, "-m", module, *arguments]
        if world.container:
            run = [python, "-m", "tests.container_seccomp", str(world.user), *run]
        elif world.user:
            run = ["setpriv", f"--reuid={world.user}", f"--regid={world.user}", "--clear-groups", *run]
        outer = ["unshare", "--mount", "sh", "-c", BIND_THEN_RUN, "sh"]
        folders = [sys.base_prefix, str(place), sysconfig.get_path("purelib"), str(ROOT)]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{place}/repository:{place}/site",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        yield [*outer, *folders, *run], environment
    finally:
        for name in ("python", "site", "repository"):
            (place / name).rmdir()
        place.rmdir()
