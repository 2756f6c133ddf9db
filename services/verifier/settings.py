"""The verifier's settings: the shared ones, and the replica's name."""

from pacs.runtime.service_settings import ServiceSettings

__all__ = ["Settings"]


class Settings(ServiceSettings):
    """See `ServiceSettings`."""

    @property
    def consumer(self) -> str:
        """Name towards Redis, stable across restarts."""
        return f"verifier-{self.replica}"
