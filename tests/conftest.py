"""What tests of every kind share: one event loop, one server for the session, emptied before each test."""

import os

import pytest
from hypothesis import settings

from pacs.errors import BadInput
from pacs.local.redis_server import find_server
from pacs.testing import embedded_redis

settings.register_profile("pacs", deadline=None)  # on a busy machine timings are noise
settings.load_profile("pacs")


@pytest.fixture(scope="session")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="session")
def redis_server():
    """A server of this session's own. CI must have the binary; elsewhere its tests are skipped, with the reason."""
    try:
        find_server()
    except BadInput as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
    with embedded_redis() as server:
        yield server


@pytest.fixture
async def redis_client(redis_server):
    from redis.asyncio import Redis

    client = Redis.from_url(redis_server.url)
    await client.flushall()
    yield client
    await client.aclose()
