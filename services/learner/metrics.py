"""Every metric the learner emits."""

import time
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["LearnerMetrics"]

STALENESS_BUCKETS = (0, 1, 2, 3, 4, 6, 8, 16)

_GAUGES = {
    "loss": ("pacs_learner_loss", "Loss of the last batch"),
    "accuracy": ("pacs_learner_accuracy_ratio", "Share of correct completions in the last batch"),
    "grad_norm": ("pacs_learner_grad_norm", "Global gradient norm before clipping"),
    "learning_rate": ("pacs_learner_learning_rate", "Learning rate"),
    "entropy": ("pacs_policy_entropy_nats", "Mean entropy of the policy per response token"),
    "calibration_error": ("pacs_calibration_error", "Expected calibration error of sigmoid(psi), 10 bins"),
    "brier": ("pacs_brier_score", "Brier score of sigmoid(psi)"),
    "auc": ("pacs_score_auc_ratio", "Area under the ROC curve of psi"),
    "score_correct_mean": ("pacs_score_correct_mean", "Mean psi of correct completions"),
    "score_wrong_mean": ("pacs_score_wrong_mean", "Mean psi of wrong completions"),
    "value_loss": ("pacs_value_loss", "Loss of PPO's value function in the last batch"),
    "explained_variance": ("pacs_value_explained_variance", "Share of the returns' variance that values explained"),
    "logprob_gap_max": ("pacs_logprob_gap_nats", "Largest engine-learner log-prob gap of the last batch's tokens"),
    "length_slope": ("pacs_score_length_slope", "Slope of psi against response length"),
    "saturated_share": ("pacs_score_saturated_ratio", "Share of scores whose sigmoid is flat, slope below 1e-3"),
    "drift": ("pacs_reference_drift_nats", "Mean |log pi - log pi_ref| per response token of the last batch"),
    "noise_floor": ("pacs_score_noise_floor", "Largest |psi| of an untouched policy, measured on the first batch"),
    "class_weight_min": ("pacs_class_weight_min", "Smallest class weight in the last batch"),
    "class_weight_max": ("pacs_class_weight_max", "Largest class weight in the last batch"),
    "uniform_share": ("pacs_learner_uniform_ratio", "Share of the last batch's judged groups that have one label"),
    "reference_epoch": ("pacs_learner_reference_epoch", "Resets so far"),
    "truncated_share": ("pacs_learner_truncated_ratio", "Share of completions cut at the length limit"),
}


class LearnerMetrics:
    """The learner's metrics on one registry, labelled with the run.

    Args:
        registry: of this process.
        run: name of the run.
        max_staleness: the run's limit, batches.

    """

    def __init__(self, registry: CollectorRegistry, run: str, max_staleness: int) -> None:
        self._run = run
        self._gauges = {
            key: Gauge(name, text, ["run"], registry=registry).labels(run) for key, (name, text) in _GAUGES.items()
        }
        self._tokens = Counter("pacs_learner_tokens", "Response tokens trained on", ["run"], registry=registry).labels(
            run
        )
        self._groups = Counter("pacs_learner_groups", "Groups trained on", ["run", "labels"], registry=registry)
        self._nonfinite = Counter(
            "pacs_learner_nonfinite_steps",
            "Optimizer steps skipped: loss or gradient not finite",
            ["run"],
            registry=registry,
        ).labels(run)
        self._last_step = Gauge(
            "pacs_learner_last_step_timestamp_seconds", "When the last batch ended", ["run"], registry=registry
        ).labels(run)
        self._staleness = Histogram(
            "pacs_learner_group_staleness_batches",
            "Batches between sampling and training",
            ["run"],
            buckets=STALENESS_BUCKETS,
            registry=registry,
        ).labels(run)
        self._seconds = Gauge(
            "pacs_learner_phase_seconds", "Time of the last batch by phase", ["run", "phase"], registry=registry
        )
        Gauge("pacs_learner_max_staleness_batches", "Limit", ["run"], registry=registry).labels(run).set(max_staleness)
        self._stale = Counter(
            "pacs_learner_stale_groups", "Groups too old to train on, sampled anew", ["run"], registry=registry
        ).labels(run)
        self._version = Gauge(
            "pacs_learner_policy_version", "Version published last", ["run"], registry=registry
        ).labels(run)
        self._published = 0

    @property
    def version(self) -> int:
        """The version published last; 0 in a new process."""
        return self._published

    @version.setter
    def version(self, value: int) -> None:
        self._published = value
        self._version.set(value)

    def count_stale(self) -> None:
        """A group was too old."""
        self._stale.inc()

    def show_step(self, figures: Mapping[str, Any]) -> None:
        """Show one batch's figures."""
        for key, gauge in self._gauges.items():
            if figures.get(key) is not None:
                gauge.set(figures[key])
        self._tokens.inc(figures["tokens"])
        for labels, groups in figures["groups"].items():
            self._groups.labels(self._run, labels).inc(groups)
        self._nonfinite.inc(figures["skipped_steps"])
        self._staleness.observe(figures["staleness_max"])
        for phase, seconds in figures["seconds"].items():
            self._seconds.labels(self._run, phase).set(seconds)
        self._last_step.set(time.time())
