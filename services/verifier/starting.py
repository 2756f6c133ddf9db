"""What must stand before the verifier serves: no sandbox, no service."""

from pacs.runtime.config import DataSection
from services.verifier.checkers.interface import Starts
from services.verifier.checkers.registry import Registry

__all__ = ["start_checker"]

FAMILIES = "reasoning_gym"
COMPOSITE = "composite"


async def start_checker(registry: Registry, data: DataSection) -> None:
    """Start what the run's own task needs, so that a machine without it is refused at once, not with the first row.

    Raises:
        BadInput: the task names no checker, or needs a sandbox and no mode that the settings allow works here.

    """
    checker = registry.get(FAMILIES if data.source == FAMILIES else data.task)
    if isinstance(checker, Starts):
        await checker.start(_families(data))


def _families(data: DataSection) -> list[str]:
    if data.source != FAMILIES:
        return []
    if data.family != COMPOSITE:
        return [str(data.family)]
    return [str(part.get("name")) for part in data.family_options.get("datasets", []) if isinstance(part, dict)]
