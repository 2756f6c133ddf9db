import pytest

from tests.stream_lanes import MemoryLane, RedisLane, look_at_once


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.redis)])
def open_lane(request, monkeypatch):
    """Makes lanes of either kind: `await open_lane(claim_seconds)`."""
    look_at_once(monkeypatch)
    if request.param == "memory":
        return lambda claim_seconds=60.0: MemoryLane(claim_seconds).prepare()
    client = request.getfixturevalue("redis_client")
    return lambda claim_seconds=60.0: RedisLane(claim_seconds, client).prepare()
