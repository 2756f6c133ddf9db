"""Landlock: some files may be read, nothing else may happen to files (docs.kernel.org/userspace-api/landlock.html)."""

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable

from services.verifier.sandbox.inside.kernel import system_call

__all__ = ["landlock_version", "read_only_rules", "restrict"]

ASK_VERSION = 1
RULE_PATH_BENEATH = 1
READ_FILE, READ_FOLDER = 1 << 2, 1 << 3
FILE_RIGHTS_OF_VERSION = {1: 13, 2: 14, 3: 15, 4: 15}
FILE_RIGHTS_SINCE_5 = 16
TCP_RIGHTS = 0b11  # bind, connect
SCOPES = 0b11  # abstract unix sockets, signals
TCP_SINCE, SCOPES_SINCE = 4, 6


def landlock_version() -> int:
    """Version of the kernel's Landlock; 0 where there is none or it is switched off."""
    try:
        return system_call("landlock_create_ruleset", 0, 0, ASK_VERSION)
    except OSError:
        return 0


def read_only_rules(folders: Iterable[str], files: Iterable[str]) -> int:
    """Make a rule set in which these may be read and everything else is denied, as a descriptor.

    Args:
        folders: readable with all they hold; those that do not exist are left out.
        files: likewise.

    Raises:
        OSError: no Landlock here.

    """
    version = landlock_version()
    rights = (1 << FILE_RIGHTS_OF_VERSION.get(version, FILE_RIGHTS_SINCE_5)) - 1
    words = [rights]
    if version >= TCP_SINCE:
        words.append(TCP_RIGHTS)
    if version >= SCOPES_SINCE:
        words.append(SCOPES)
    attributes = ctypes.create_string_buffer(struct.pack(f"={len(words)}Q", *words), 8 * len(words))
    rules = system_call("landlock_create_ruleset", ctypes.byref(attributes), 8 * len(words), 0)
    for path in folders:
        _allow(rules, path, READ_FILE | READ_FOLDER)
    for path in files:
        _allow(rules, path, READ_FILE)
    return rules


def restrict(rules: int) -> None:
    """Put this process under the rule set, for good; needs no_new_privs."""
    system_call("landlock_restrict_self", rules, 0)


def _allow(rules: int, path: str, rights: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor), 12)
        system_call("landlock_add_rule", rules, RULE_PATH_BENEATH, ctypes.byref(rule), 0)
        os.close(descriptor)
