"""Every metric control emits."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from pacs.transport.interface import Ledger, Stream
from services.control.run_state import Phase

__all__ = ["ControlMetrics"]


class ControlMetrics:
    """Control's metrics on one registry, labelled with the run.

    Args:
        registry: of this process.
        run: name of the run.

    """

    def __init__(self, registry: CollectorRegistry, run: str) -> None:
        self._run = run
        self._ledger = Gauge("pacs_ledger_groups", "Groups by fate", ["run", "fate"], registry=registry)
        self._entries = Gauge("pacs_stream_entries", "Groups in a stream", ["run", "stream"], registry=registry)
        self._phase = Gauge("pacs_run_state", "1 for the phase the run is in", ["run", "state"], registry=registry)
        self._balanced = Gauge(
            "pacs_ledger_balanced", "1 while every group is accounted for", ["run"], registry=registry
        )
        self.policy_version = Gauge("pacs_policy_version", "Live policy version", ["run"], registry=registry).labels(
            run
        )
        self.heldout_accuracy = Gauge(
            "pacs_heldout_accuracy_ratio", "Last evaluation", ["run"], registry=registry
        ).labels(run)
        self.logprob_gap = Gauge(
            "pacs_publication_logprob_gap_nats",
            "Largest engine-learner gap on the probe, last publication",
            ["run"],
            registry=registry,
        ).labels(run)
        self.publications = Counter("pacs_weight_sync", "Publications by result", ["run", "result"], registry=registry)
        self._phase_seconds = Gauge(
            "pacs_weight_sync_phase_seconds",
            "Time of each phase, last publication",
            ["run", "phase"],
            registry=registry,
        )
        self._refused = Gauge("pacs_problems_refused", "Rows refused at load", ["run", "reason"], registry=registry)

    def show_ledger(self, ledger: Ledger) -> None:
        """Set the ledger's gauges."""
        fates = {"admitted": ledger.admitted, "trained": ledger.trained, "in_flight": ledger.in_flight}
        for fate, groups in {**fates, **{f"dropped_{r}": n for r, n in ledger.dropped.items()}}.items():
            self._ledger.labels(self._run, fate).set(groups)
        self._balanced.labels(self._run).set(ledger.balances)

    def show_queue(self, stream: Stream, groups: int) -> None:
        """Set one stream's gauge."""
        self._entries.labels(self._run, stream.value).set(groups)

    def show_phase(self, phase: Phase) -> None:
        """Mark the phase the run is in."""
        for candidate in Phase:
            self._phase.labels(self._run, candidate.value).set(candidate is phase)

    def count_publication(self, result: str) -> None:
        """Count a publication that ended `ok` or `failed`."""
        self.publications.labels(self._run, result).inc()

    def show_phase_seconds(self, phases: "dict[str, float]") -> None:
        """Set the times of the last publication's phases."""
        for phase, seconds in phases.items():
            self._phase_seconds.labels(self._run, phase).set(seconds)

    def show_refused(self, reason: str, rows: int) -> None:
        """Set the rows refused at load for one reason."""
        self._refused.labels(self._run, reason).set(rows)
