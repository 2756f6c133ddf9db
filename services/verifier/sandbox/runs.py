"""What a run may use, and what came of it."""

from dataclasses import dataclass

from pacs.errors import ServiceFailed
from pacs.runtime.config import SandboxSection

__all__ = ["RunLimits", "RunLost", "RunResult"]


class RunLost(ServiceFailed):
    """The sandbox, not the program, failed; the run is worth another try."""


@dataclass(frozen=True)
class RunLimits:
    """Limits of one run.

    Args:
        cpu_seconds: CPU time; the kernel counts whole seconds, so a fraction is rounded up.
        wall_seconds: time on the clock, for programs that sleep.
        memory_bytes: address space, the interpreter's own 30 MiB included.
        output_bytes: stdout and stderr each, and one answer to the judge.
        threads: besides the first one.

    """

    cpu_seconds: float
    wall_seconds: float
    memory_bytes: int
    output_bytes: int
    threads: int

    @classmethod
    def of(cls, settings: SandboxSection) -> "RunLimits":
        """Return the configured limits; the wall clock follows from the CPU time unless it is set."""
        return cls(
            cpu_seconds=settings.cpu_seconds,
            wall_seconds=settings.wall_seconds or 3 * settings.cpu_seconds + 2,
            memory_bytes=settings.memory_bytes,
            output_bytes=settings.output_bytes,
            threads=settings.threads,
        )


@dataclass(frozen=True)
class RunResult:
    """What came of a run.

    Args:
        status: ok, runtime_error, cpu_limit, wall_limit, output_limit, signal, or ended: the judge had seen enough.
        stdout: all of it, less than the limit unless status is output_limit.
        stderr: the last 4 KiB.
        cpu_seconds: CPU time used.
        wall_seconds: from the fork to the end.
        peak_bytes: resident memory at most.
        isolation: mode of the sandbox: strong, landlock or weak.

    """

    status: str
    stdout: bytes
    stderr: bytes
    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int
    isolation: str
