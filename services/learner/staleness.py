"""How old a group is, and whether it is too old to train on. Pure."""

from collections.abc import Mapping

from pacs.wire.groups import Group

__all__ = ["staleness"]


def staleness(group: Group, step: int, version_steps: Mapping[int, int]) -> int:
    """Batches between the weights that sampled a group and those that are trained now; its worst token counts.

    Counted in batches, not versions: a learner that starts again publishes the same weights under a new version, and
    weights that were lost with a killed learner are away by the batches they were ahead.

    Args:
        group: sampled by one or more versions.
        step: batches behind the learner's weights.
        version_steps: batches behind each of the last versions; versions before them count as untrained weights.

    """
    return max(abs(step - version_steps.get(version, 0)) for version in group.versions)
