"""Every metric the verifier's judging emits."""

import contextlib
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from services.verifier.checkers.interface import Judgement

__all__ = ["VerifierMetrics"]

CHECK_SECONDS_BUCKETS = (0.0005, 0.002, 0.01, 0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0)
"""From the fast path through one comparison in a worker to a long queue in front of the workers."""


class VerifierMetrics:
    """Counts verdicts and times checks, by checker.

    Args:
        registry: the process's own registry.
        run: name of the run, the label `run`.

    """

    def __init__(self, registry: CollectorRegistry, run: str) -> None:
        self._run = run
        self._verdicts = Counter(
            "pacs_verifier_verdicts_total",
            "Completions judged, by status: ok, wrong, no_answer, truncated, too_complex, timeout, error.",
            ["run", "verifier", "verdict"],
            registry=registry,
        )
        self._seconds = Histogram(
            "pacs_verifier_check_seconds",
            "Wall time of one check, the wait for a free worker included.",
            ["run", "verifier"],
            buckets=CHECK_SECONDS_BUCKETS,
            registry=registry,
        )
        self._in_progress = Gauge(
            "pacs_verifier_checks_in_progress",
            "Checks that are running or wait for a worker.",
            ["run", "verifier"],
            registry=registry,
        )

        self._cache_hits = Counter(
            "pacs_verifier_cache_hits_total",
            "Verdicts given again for a completion that was judged before.",
            ["run", "verifier"],
            registry=registry,
        )
        self._reference = Counter(
            "pacs_verifier_reference_total",
            "Verdicts the reference was asked about too, by outcome: same, stricter (we say wrong), looser.",
            ["run", "verifier", "outcome"],
            registry=registry,
        )
        share = Gauge(
            "pacs_verifier_invalid_share",
            "Time-outs and errors among the last verdicts; over verifier.max_invalid_share the run is paused.",
            ["run"],
            registry=registry,
        )
        self.invalid_share = share.labels(run)

    def count_cache_hit(self, verifier: str) -> None:
        """Count a verdict that was not computed."""
        self._cache_hits.labels(self._run, verifier).inc()

    @contextlib.contextmanager
    def checking(self, verifier: str) -> Iterator[None]:
        """Count a check as in progress while the block runs."""
        with self._in_progress.labels(self._run, verifier).track_inprogress():
            yield

    def observe(self, verifier: str, judgement: Judgement) -> None:
        """Count one verdict and its time."""
        self._verdicts.labels(self._run, verifier, judgement.status).inc()
        self._seconds.labels(self._run, verifier).observe(judgement.seconds)
        if judgement.reference:
            ours, theirs = judgement.status == "ok", judgement.reference == "ok"
            outcome = "same" if ours == theirs else "looser" if ours else "stricter"
            self._reference.labels(self._run, verifier, outcome).inc()
