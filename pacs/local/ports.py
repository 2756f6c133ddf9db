"""A free port of this machine, for servers that live for a moment."""

import socket

__all__ = ["free_port"]


def free_port() -> int:
    """A port nobody listens on now; whoever binds it next has it, so bind soon."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
