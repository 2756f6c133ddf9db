"""How every process connects to Redis."""

from redis.asyncio import BlockingConnectionPool, Redis

__all__ = ["connect"]

MAX_CONNECTIONS = 32
WAIT_SECONDS = 60.0  # for a free connection: many groups may finish in the same moment


def connect(url: str) -> "Redis":
    """A client whose callers queue for a connection; the default pool raises when more than it has are wanted."""
    return Redis(
        connection_pool=BlockingConnectionPool.from_url(url, max_connections=MAX_CONNECTIONS, timeout=WAIT_SECONDS)
    )
