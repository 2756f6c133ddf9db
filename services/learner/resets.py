"""When the reference is replaced by the policy: decided between two batches, by settings, figures and requests."""

from collections.abc import Mapping
from typing import Any

from pacs.runtime.config import RunConfig

__all__ = ["ResetSchedule"]


class ResetSchedule:
    """See the module; docs/algorithm.md says what the references are good for.

    Args:
        config: of the run.

    """

    def __init__(self, config: RunConfig) -> None:
        self._reference = config.algorithm.reference
        self._settings = config.reset
        self._last_step = config.run.max_steps
        self._requested_epoch = 0
        self._requested_reason = ""

    def request(self, reference_epoch: int, reason: str) -> None:
        """Reset after the batch in hand, unless the reference is of that epoch already."""
        self._requested_epoch, self._requested_reason = reference_epoch, reason

    def due(self, step: int, reference_epoch: int, figures: Mapping[str, Any]) -> str:
        """Why to reset now; empty: not now.

        Args:
            step: batches trained.
            reference_epoch: resets so far.
            figures: of the last batch.

        """
        if self._reference == "batch" or step >= self._last_step:
            return ""
        if reference_epoch < self._requested_epoch:
            return self._requested_reason
        if self._reference == "interval" and step % self._settings.every_steps == 0:
            return "interval"
        return self._drifted(figures) if self._reference == "drift" else ""

    def _drifted(self, figures: Mapping[str, Any]) -> str:
        drift, saturated = figures.get("drift"), figures.get("saturated_share")
        if drift is not None and drift > self._settings.drift:
            return f"drift {drift:.3g} nats per token"
        if saturated is not None and saturated > self._settings.saturated_share:
            return f"{saturated:.0%} of scores saturated"
        return ""
