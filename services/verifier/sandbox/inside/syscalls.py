"""Numbers of the system calls the filter speaks of, for x86-64 and aarch64 (linux, uapi/asm-generic/unistd.h)."""

import platform

__all__ = ["ALWAYS_ALLOWED", "ARCHITECTURES", "Architecture", "this_architecture"]

Architecture = tuple[int, dict[str, int]]
"""The architecture's AUDIT_ARCH number, which the filter compares with, and the system calls' numbers by name."""

X86_64 = {
    "read": 0, "write": 1, "open": 2, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7, "lseek": 8, "mmap": 9,
    "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "ioctl": 16,
    "pread64": 17, "readv": 19, "writev": 20, "access": 21, "pipe": 22, "select": 23, "sched_yield": 24, "mremap": 25,
    "mincore": 27, "madvise": 28, "dup": 32, "dup2": 33, "pause": 34, "nanosleep": 35, "getitimer": 36, "alarm": 37,
    "setitimer": 38, "getpid": 39, "sendto": 44, "recvfrom": 45, "shutdown": 48, "getsockname": 51, "getpeername": 52,
    "socketpair": 53, "getsockopt": 55, "clone": 56, "exit": 60, "uname": 63, "kill": 62, "fcntl": 72, "fsync": 74,
    "getcwd": 79, "chdir": 80, "readlink": 89, "umask": 95, "gettimeofday": 96, "getrlimit": 97, "getrusage": 98,
    "sysinfo": 99, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108, "getppid": 110,
    "getpgrp": 111, "getgroups": 115, "getresuid": 118, "getresgid": 120, "getpgid": 121, "getsid": 124, "capset": 126,
    "rt_sigpending": 127, "rt_sigtimedwait": 128, "rt_sigsuspend": 130, "sigaltstack": 131, "getpriority": 140,
    "sched_getparam": 143, "sched_getscheduler": 145, "sched_get_priority_max": 146, "sched_get_priority_min": 147,
    "prctl": 157, "arch_prctl": 158, "gettid": 186, "time": 201, "futex": 202, "sched_getaffinity": 204,
    "epoll_create": 213, "getdents64": 217, "set_tid_address": 218, "restart_syscall": 219, "clock_gettime": 228,
    "clock_getres": 229, "clock_nanosleep": 230, "exit_group": 231, "epoll_wait": 232, "epoll_ctl": 233, "tgkill": 234,
    "openat": 257, "newfstatat": 262, "readlinkat": 267, "faccessat": 269, "pselect6": 270, "ppoll": 271,
    "unshare": 272, "set_robust_list": 273, "epoll_pwait": 281, "eventfd2": 290, "epoll_create1": 291, "dup3": 292,
    "pipe2": 293, "preadv": 295, "prlimit64": 302, "getcpu": 309, "getrandom": 318, "membarrier": 324, "statx": 332,
    "rseq": 334, "clone3": 435, "close_range": 436, "faccessat2": 439, "landlock_create_ruleset": 444,
    "landlock_add_rule": 445, "landlock_restrict_self": 446,
}  # fmt: skip

AARCH64 = {
    "getcwd": 17, "eventfd2": 19, "epoll_create1": 20, "epoll_ctl": 21, "epoll_pwait": 22, "dup": 23, "dup3": 24,
    "fcntl": 25, "ioctl": 29, "faccessat": 48, "chdir": 49, "openat": 56, "close": 57, "pipe2": 59, "getdents64": 61,
    "lseek": 62, "read": 63, "write": 64, "readv": 65, "writev": 66, "pread64": 67, "preadv": 69, "pselect6": 72,
    "ppoll": 73, "readlinkat": 78, "newfstatat": 79, "fstat": 80, "fsync": 82, "capset": 91, "exit": 93,
    "exit_group": 94, "set_tid_address": 96, "unshare": 97, "futex": 98, "set_robust_list": 99, "nanosleep": 101,
    "getitimer": 102, "setitimer": 103, "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115,
    "sched_getscheduler": 120, "sched_getparam": 121, "sched_getaffinity": 123, "sched_yield": 124,
    "sched_get_priority_max": 125, "sched_get_priority_min": 126, "restart_syscall": 128, "kill": 129, "tgkill": 131,
    "sigaltstack": 132, "rt_sigsuspend": 133, "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigpending": 136,
    "rt_sigtimedwait": 137, "rt_sigreturn": 139, "getpriority": 141, "getresuid": 148, "getresgid": 150, "times": 153,
    "getpgid": 155, "getsid": 156, "getgroups": 158, "uname": 160, "getrlimit": 163, "getrusage": 165, "umask": 166,
    "prctl": 167, "getcpu": 168, "gettimeofday": 169, "getpid": 172, "getppid": 173, "getuid": 174, "geteuid": 175,
    "getgid": 176, "getegid": 177, "gettid": 178, "sysinfo": 179, "socketpair": 199, "getsockname": 204,
    "getpeername": 205, "sendto": 206, "recvfrom": 207, "getsockopt": 209, "shutdown": 210, "brk": 214, "munmap": 215,
    "mremap": 216, "clone": 220, "mmap": 222, "mprotect": 226, "mincore": 232, "madvise": 233, "prlimit64": 261,
    "getrandom": 278, "membarrier": 283, "statx": 291, "rseq": 293, "clone3": 435, "close_range": 436,
    "faccessat2": 439, "landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446,
}  # fmt: skip

ARCHITECTURES: dict[str, Architecture] = {"x86_64": (0xC000003E, X86_64), "aarch64": (0xC00000B7, AARCH64)}

ALWAYS_ALLOWED = (
    # the frequent ones first: the filter is a list that is read from the top
    "read", "write", "futex", "mmap", "munmap", "brk", "mprotect", "fstat", "newfstatat", "lseek", "close", "madvise",
    "rt_sigprocmask", "rt_sigaction", "rt_sigreturn", "clock_gettime",
    # files that are open or may be opened for reading; Landlock decides which
    "stat", "lstat", "statx", "access", "faccessat", "faccessat2", "pread64", "preadv", "readv", "writev", "readlink",
    "readlinkat", "getdents64", "getcwd", "chdir", "fsync", "dup", "dup2", "dup3", "close_range", "umask",
    # memory
    "mremap", "mincore", "membarrier",
    # waiting, and talking to oneself: asyncio needs it
    "poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait",
    "eventfd2", "pipe", "pipe2", "sendto", "recvfrom", "shutdown", "getsockname", "getpeername", "getsockopt",
    # time
    "nanosleep", "clock_nanosleep", "clock_getres", "gettimeofday", "time", "times", "getitimer", "setitimer", "alarm",
    "pause",
    # signals within the process
    "rt_sigpending", "rt_sigtimedwait", "rt_sigsuspend", "sigaltstack", "restart_syscall",
    # threads
    "set_tid_address", "set_robust_list", "rseq", "arch_prctl", "sched_yield", "sched_getaffinity", "sched_getparam",
    "sched_getscheduler", "sched_get_priority_max", "sched_get_priority_min", "getcpu", "exit", "exit_group",
    # asking who and where one is
    "getpid", "gettid", "getppid", "getpgrp", "getpgid", "getsid", "getuid", "geteuid", "getgid", "getegid",
    "getgroups", "getresuid", "getresgid", "getpriority", "getrlimit", "getrusage", "sysinfo", "uname", "getrandom",
)  # fmt: skip
"""Calls without conditions; names an architecture lacks are its older spellings, which nothing there uses."""


def this_architecture() -> Architecture:
    """Return the table of the machine.

    Raises:
        OSError: there is none, so nothing can be filtered here.

    """
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise OSError(f"the sandbox has system call tables for {', '.join(ARCHITECTURES)}, this machine is {machine}")
    return ARCHITECTURES[machine]
