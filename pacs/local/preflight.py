"""What can be known to fail is said before anything heavy starts."""

import socket
from pathlib import Path

from pacs.data.problems import load_problems
from pacs.errors import BadInput
from pacs.runtime.base_model import weight_files
from pacs.runtime.config import RunConfig

__all__ = ["check", "check_model_directory", "check_ports", "check_redis"]

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
WEIGHT_FILES = ("*.safetensors", "*.bin")


def check(config: RunConfig) -> None:
    """Look at the model, the data, the ports and, where it is not ours, Redis.

    Raises:
        BadInput: with one sentence.

    """
    check_model_directory(config.model.path)
    if config.model.lora.rank:
        weight_files(config.model.path)
    load_problems(config.data, config.run.seed)
    check_ports(config)
    if config.redis.url is not None:
        check_redis(config.redis.url)


def check_model_directory(path: Path) -> None:
    """Refuse a folder without configuration, tokenizer or weights."""
    if not path.is_dir():
        raise BadInput(f"model.path must be a folder in Hugging Face format, got {path}, which does not exist")
    if not (path / "config.json").is_file():
        raise BadInput(f"model.path must hold a config.json, got none in {path}; give a folder in Hugging Face format")
    if not any((path / name).is_file() for name in TOKENIZER_FILES):
        raise BadInput(
            f"model.path must hold a tokenizer (one of {', '.join(TOKENIZER_FILES)}), got none in {path}; "
            "copy the tokenizer's files there"
        )
    if not any(next(path.glob(pattern), None) for pattern in WEIGHT_FILES):
        raise BadInput(f"model.path must hold weights (one of {', '.join(WEIGHT_FILES)}), got none in {path}")


def check_ports(config: RunConfig) -> None:
    """Refuse a port that somebody else listens on."""
    for key, port in config.ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                raise BadInput(
                    f"the run must be able to listen on {key}={port}, but the port is in use ({error.strerror}); "
                    f"stop what listens there or set {key} to another port"
                ) from error


def check_redis(url: str) -> None:
    """Refuse a server that is away, too old, or set up to lose groups."""
    import asyncio

    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    from pacs.transport.redis_streams import check_server

    async def look() -> None:
        client = Redis.from_url(url, socket_timeout=10)
        try:
            await check_server(client)
        finally:
            await client.aclose()

    try:
        asyncio.run(look())
    except RedisError as error:
        raise BadInput(f"redis.url must name a Redis that answers: {error}; start it or remove redis.url") from error
