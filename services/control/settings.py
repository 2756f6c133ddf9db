"""Control's settings: the shared ones, and where it listens."""

from pacs.runtime.service_settings import ServiceSettings

__all__ = ["Settings"]


class Settings(ServiceSettings):
    """See `ServiceSettings`."""

    @property
    def http_port(self) -> int:
        """Of the HTTP API."""
        return self.config.control.http_port

    @property
    def grpc_port(self) -> int:
        """Of the gRPC API."""
        return self.config.control.grpc_port
