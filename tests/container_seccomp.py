"""Run a command as in a container: `python -m tests.container_seccomp UID COMMAND…`.

About what Docker's and containerd's default profile does to a container without CAP_SYS_ADMIN: the calls that make
namespaces, mounts and the like are denied, and root keeps the default capabilities only.
"""

import ctypes
import os
import struct
import sys

from services.verifier.sandbox.inside.kernel import forbid_new_privileges, prctl, system_call
from services.verifier.sandbox.inside.seccomp import ALLOW, ERRNO, IF_ANY_BIT, IF_EQUAL, LOAD, RETURN, Filter

DENIED = (
    101, 103, 155, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 175, 176, 179, 237, 238, 239,
    246, 248, 249, 250, 272, 298, 300, 303, 304, 308, 312, 313, 321, 323, 425, 426, 427, 428, 429, 430, 431, 432, 433,
    438, 440, 442,
)  # fmt: skip
"""x86-64: ptrace, pivot_root, mount and its kin, reboot, modules, keys, unshare, setns, bpf, io_uring, …"""
CLONE, CLONE3, NEW_NAMESPACES = 56, 435, 0x7E020000
DEFAULT_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
PR_CAPBSET_DROP = 24


def main() -> None:
    user, command = int(sys.argv[1]), sys.argv[2:]
    keep_default_capabilities()
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    forbid_new_privileges()
    deny().install(os.getpid())
    os.execv(command[0], command)


def keep_default_capabilities() -> None:
    for capability in range(41):
        if capability not in DEFAULT_CAPABILITIES:
            prctl(PR_CAPBSET_DROP, capability)
    kept = sum(1 << capability for capability in DEFAULT_CAPABILITIES)
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0), 8)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    sets = ctypes.create_string_buffer(struct.pack("=6I", low, low, low, high, high, high), 24)
    system_call("capset", ctypes.byref(header), ctypes.byref(sets))


def deny() -> Filter:
    program = [(LOAD, 0, 0, 0)]
    for number in DENIED:
        program += [(IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | 1)]
    program += [(IF_EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, ERRNO | 38)]
    program += [
        (IF_EQUAL, 0, 3, CLONE),
        (LOAD, 0, 0, 16),
        (IF_ANY_BIT, 0, 1, NEW_NAMESPACES),
        (RETURN, 0, 0, ERRNO | 1),
    ]
    program += [(RETURN, 0, 0, ALLOW)]
    return Filter(b"".join(struct.pack("=HBBI", *instruction) for instruction in program), ())


if __name__ == "__main__":
    main()
