"""Every metric a rollout replica emits."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["RolloutMetrics"]

SECONDS_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class RolloutMetrics:
    """One replica's metrics on one registry, labelled with the run and the replica.

    Args:
        registry: of this process.
        run: name of the run.
        replica: name of the replica.

    """

    def __init__(self, registry: CollectorRegistry, run: str, replica: str) -> None:
        names, values = ["run", "replica"], (run, replica)
        self._tokens = Counter(
            "pacs_rollout_completion_tokens", "Response tokens sampled", names, registry=registry
        ).labels(*values)
        self._groups = Counter("pacs_rollout_groups", "Groups by outcome", [*names, "outcome"], registry=registry)
        self._values = values
        self._version = Gauge(
            "pacs_rollout_policy_version", "Verified policy version held", names, registry=registry
        ).labels(*values)
        self._seconds = Histogram(
            "pacs_rollout_group_seconds", "Time to sample a group", names, buckets=SECONDS_BUCKETS, registry=registry
        ).labels(*values)

    def sampled(self, tokens: int) -> None:
        """Count a sampled group."""
        self._tokens.inc(tokens)
        self._groups.labels(*self._values, "sampled").inc()

    def dropped(self, reason: str) -> None:
        """Count a group that ends here."""
        self._groups.labels(*self._values, f"dropped_{reason}").inc()

    def show_version(self, policy_version: int) -> None:
        """Show the verified version held."""
        self._version.set(policy_version)

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Measure one group."""
        began = time.monotonic()
        yield
        self._seconds.observe(time.monotonic() - began)
