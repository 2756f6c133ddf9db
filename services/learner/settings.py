"""The learner's settings: the shared ones, and where its files go."""

from pathlib import Path

from pacs.runtime.service_settings import ServiceSettings

__all__ = ["Settings"]


class Settings(ServiceSettings):
    """See `ServiceSettings`."""

    @property
    def checkpoint_directory(self) -> Path:
        """Holds one folder a checkpoint."""
        return self.config.run.path / "checkpoints"

    @property
    def export_directory(self) -> Path:
        """Gets the trained model in Hugging Face format."""
        return self.config.run.path / "export"

    @property
    def agent_id(self) -> str:
        """Name towards control and Redis, stable across restarts."""
        return f"learner-{self.replica}"
