"""What every service process needs beside the run's file: where the others are, and the secrets.

Addresses and secrets come from the environment (`PACS_…`) or from files, never from the run's file,
so that one file serves a laptop and a cluster.
"""

from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from pacs.errors import BadInput
from pacs.runtime.config import RunConfig
from pacs.runtime.config_file import load_config

__all__ = ["ServiceSettings"]


class ServiceSettings(BaseSettings):
    """Settings shared by the services; each has its own subclass in its `settings.py`."""

    model_config = SettingsConfigDict(env_prefix="PACS_", frozen=True, extra="ignore")

    config: RunConfig
    redis_url: SecretStr = Field(description="redis://[:password@]host:port")
    token: SecretStr | None = Field(None, description="Bearer token of control and verifier.")
    token_file: Path | None = Field(None, description="File that holds the token instead.")
    control_address: str = Field("", description="host:port of control's gRPC.")
    verifier_address: str = Field("", description="host:port of the verifier's gRPC.")
    bind_host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 in containers.")
    advertise_host: str = Field("127.0.0.1", description="Address at which others reach this process.")
    replica: str = Field("0", description="Stable name of this replica among its kind.")

    @classmethod
    def load(cls, config_path: Path) -> Self:
        """Read the run's file and the environment.

        Raises:
            BadInput: a setting is missing or wrong.

        """
        config = load_config(config_path)
        try:
            settings = cls(config=config)
        except ValidationError as error:
            names = ", ".join(f"PACS_{str(e['loc'][0]).upper()}" for e in error.errors())
            raise BadInput(f"a service needs {names} in its environment ({error.errors()[0]['msg']}); set it") from None
        if settings.token is None and settings.token_file is None:
            raise BadInput("a service needs PACS_TOKEN or PACS_TOKEN_FILE, got neither; set one of them")
        if settings.token is None and settings.token_file is not None and not settings.token_file.is_file():
            raise BadInput(f"PACS_TOKEN_FILE must be a file, got {settings.token_file}, which does not exist")
        return settings

    @property
    def control_target(self) -> str:
        """host:port of control's gRPC."""
        return self.control_address or f"127.0.0.1:{self.config.control.grpc_port}"

    @property
    def control_http_url(self) -> str:
        """Where control's HTTP API is: the host of its gRPC, and the port of the file."""
        host = self.control_target.rpartition(":")[0]
        return f"http://{host}:{self.config.control.http_port}"

    @property
    def verifier_target(self) -> str:
        """host:port of the verifier's gRPC."""
        return self.verifier_address or f"127.0.0.1:{self.config.verifier.grpc_port}"

    @property
    def bearer_token(self) -> str:
        """The token's text."""
        if self.token is not None:
            return self.token.get_secret_value()
        assert self.token_file is not None
        return self.token_file.read_text().strip()
