"""A free port of this machine, for servers that live for a moment."""

import contextlib
import socket

__all__ = ["free_port", "free_ports"]


def free_port() -> int:
    """A port nobody listens on now; whoever binds it next has it, so bind soon."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_ports(count: int) -> list[int]:
    """So many different ones: asked for one by one, the same may come twice."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
