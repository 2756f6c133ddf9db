"""The rollout's settings: the shared ones, and the replica's name."""

from pacs.runtime.service_settings import ServiceSettings

__all__ = ["Settings"]


class Settings(ServiceSettings):
    """See `ServiceSettings`."""

    @property
    def agent_id(self) -> str:
        """Name towards control and Redis, stable across restarts."""
        return f"rollout-{self.replica}"
