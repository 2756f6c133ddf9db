"""Takes from a worker, once it has imported what it needs, every right that answering does not need.

The sandbox's own primitives, for a process that lives long: no files but its libraries, and these for reading only, no
network, no process, no signal to others, no capabilities. Its limits on memory and its deadline come from elsewhere.
"""

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pacs
import services
from services.verifier.sandbox.inside.kernel import clear_capabilities, forbid_new_privileges
from services.verifier.sandbox.inside.landlock import read_only_rules, restrict
from services.verifier.sandbox.inside.seccomp import build_filter
from services.verifier.sandbox.inside.view import DEVICES, LIBRARIES, LINKER_CACHE, TIME_ZONES

__all__ = ["limit", "wall_in"]

OPEN_FILES = 64
LIMITS = (
    (resource.RLIMIT_CORE, 0),  # a dump would hold the completions
    (resource.RLIMIT_FSIZE, 0),  # no file grows; pipes are none
    (resource.RLIMIT_NOFILE, OPEN_FILES),
    (resource.RLIMIT_NPROC, 0),  # no thread and no process; the kernel does not count it for root
)


def limit() -> None:
    """Lower the limits, and give up gaining privileges: what every kernel can do."""
    for kind, value in LIMITS:
        resource.setrlimit(kind, (value, value))
    forbid_new_privileges()


def wall_in() -> None:
    """Put this process under Landlock and seccomp, for good.

    Raises:
        OSError: the kernel cannot; then nothing may be answered.

    """
    rules = read_only_rules(_readable(), (LINKER_CACHE, *DEVICES))
    clear_capabilities()
    restrict(rules)
    os.close(rules)
    build_filter().install(os.getpid())


def _readable() -> Iterator[str]:
    """Where Python and its packages lie, for modules that are imported late, and our own two packages."""
    prefixes = {sys.prefix, sys.base_prefix}
    yield from (folder for folder in sys.path if any(Path(folder).is_relative_to(prefix) for prefix in prefixes))
    yield from (*LIBRARIES, TIME_ZONES)
    yield from (folder for package in (pacs, services) for folder in package.__path__)
