"""What a run's history says in a few figures, and the problems to show before and after training.

A history is the list of JSON objects that a run records; ``kind`` is step, evaluation or publication. Any figure in
it may be missing or null, and stays null here: a figure that was not measured is never shown as 0.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "Event",
    "Example",
    "evaluations_of",
    "examples_before_after",
    "first_and_last_evaluation",
    "number",
    "publications_of",
    "steps_of",
    "summarise",
    "transitions",
    "write_atomically",
    "write_json_atomically",
]

Event = Mapping[str, Any]

RIGHT, WRONG = 1, 0
# The change from wrong to right is what training is for; a loss comes next, so that it is not hidden.
SHOWN_FIRST = [(WRONG, RIGHT), (RIGHT, WRONG), (WRONG, WRONG), (RIGHT, RIGHT)]


@dataclass(frozen=True)
class Example:
    """One held-out problem with the completion of the first and of the last evaluation."""

    prompt_id: str
    prompt: str
    answer: str
    before: Event
    after: Event

    @property
    def labels(self) -> tuple[int, int]:
        """Labels before and after; anything but 1 and 0 is invalid."""
        return _label(self.before), _label(self.after)


def number(value: object) -> float | None:
    """A finite number as float, and None for whatever else a history may hold in its place."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def steps_of(history: Iterable[Event]) -> list[Event]:
    """The optimizer steps the policy contains, by step.

    A step that comes again was repeated after a resume from a checkpoint: it replaces the earlier one, and the later
    steps recorded before it are gone with the weights they were taken on.
    """
    return _without_rolled_back(event for event in history if event.get("kind") == "step")


def evaluations_of(history: Iterable[Event]) -> list[Event]:
    """The evaluations by step, without those that a resume from a checkpoint rolled back."""
    return _without_rolled_back(event for event in history if event.get("kind") == "evaluation")


def publications_of(history: Iterable[Event]) -> list[Event]:
    """All weight publications in the order they happened: each of them was live, rolled back or not."""
    return [event for event in history if event.get("kind") == "publication"]


def first_and_last_evaluation(history: Iterable[Event]) -> tuple[Event | None, Event | None]:
    """The evaluations before and after training.

    A single evaluation is the one before training if it was made at step 0 and the one after it otherwise.
    """
    evaluations = evaluations_of(history)
    if not evaluations:
        return None, None
    first, last = evaluations[0], evaluations[-1]
    if len(evaluations) > 1:
        return first, last
    return (first, None) if first["step"] == 0 else (None, last)


def summarise(
    history: Sequence[Event],
    ledger: Event | None,
    *,
    started_at: float,
    tokens_generated: int | None = None,
    first_step_at: float | None = None,
) -> dict[str, Any]:
    """The figures of a run that fit on one screen, as JSON values.

    Args:
        history: the run's events in the order they were recorded.
        ledger: ``admitted``, ``trained``, ``dropped`` by reason and ``in_flight``, in groups.
        started_at: when this start of the run began, epoch seconds; earlier events belong to an earlier start and do
            not count for the durations.
        tokens_generated: response tokens sampled in all.
        first_step_at: when the first optimizer step began, epoch seconds; by default when that step had its groups,
            by its own durations.

    Returns:
        Accuracies as shares of the held-out problems, durations in seconds, ``max_logprob_gap`` in nats as the largest
        over all publications. What was not measured is None; counts of nothing are 0.

    """
    steps, publications = steps_of(history), publications_of(history)
    before, after = first_and_last_evaluation(history)
    latest = after or before or {}
    setup_seconds, training_seconds = _durations(history, started_at, first_step_at)
    gaps = [gap for event in publications if (gap := number(event.get("max_logprob_gap"))) is not None]
    return {
        "accuracy_before": number(before.get("accuracy")) if before else None,
        "accuracy_after": number(after.get("accuracy")) if after else None,
        "heldout_problems": latest.get("problems"),
        "evaluation_temperature": number(latest.get("temperature")),
        "steps": len(steps),
        "steps_skipped": sum(bool(step.get("skipped")) for step in steps),
        "seconds_setup_to_first_step": setup_seconds,
        "seconds_training": training_seconds,
        "tokens_generated": tokens_generated,
        "ledger": _ledger(ledger),
        "publications": len(publications),
        "max_logprob_gap": max(gaps, default=None),
    }


def examples_before_after(history: Iterable[Event], limit: int | None = None) -> list[Example]:
    """Problems of the first evaluation with their completion then and at the last one, wrong to right first.

    Within the same kind of change the order is that of the first evaluation. Empty with fewer than two evaluations.
    """
    before, after = first_and_last_evaluation(history)
    if before is None or after is None:
        return []
    later = {str(sample["prompt_id"]): sample for sample in after.get("samples") or []}
    examples = [
        Example(prompt_id, str(sample.get("prompt") or ""), str(sample.get("answer") or ""), sample, later[prompt_id])
        for sample in before.get("samples") or []
        if (prompt_id := str(sample["prompt_id"])) in later
    ]
    rank = {labels: place for place, labels in enumerate(SHOWN_FIRST)}
    return sorted(examples, key=lambda example: rank.get(example.labels, len(rank)))[:limit]


def transitions(examples: Iterable[Example]) -> dict[str, int]:
    """How many problems were learned, lost, kept right and kept wrong; invalid verdicts are left out."""
    names = {(WRONG, RIGHT): "learned", (RIGHT, WRONG): "lost", (RIGHT, RIGHT): "right", (WRONG, WRONG): "wrong"}
    counts = dict.fromkeys(names.values(), 0)
    for example in examples:
        if example.labels in names:
            counts[names[example.labels]] += 1
    return counts


def write_json_atomically(path: Path, value: object) -> None:
    """Write JSON so that a reader sees the old file or the whole new one.

    Raises:
        ValueError: a number is not finite: JSON has no word for it.

    """
    write_atomically(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a start after a crash, sees the old content or the whole new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _label(sample: Event) -> int:
    label = sample.get("label")
    return label if label in (RIGHT, WRONG) else -1


def _without_rolled_back(events: Iterable[Event]) -> list[Event]:
    kept: list[Event] = []
    for event in events:
        while kept and kept[-1]["step"] >= event["step"]:
            kept.pop()
        kept.append(event)
    return kept


def _durations(
    history: Iterable[Event], started_at: float, first_step_at: float | None
) -> tuple[float | None, float | None]:
    """Seconds from the start to the first step's begin, and from there to the end of the last step.

    A step begins when its groups are there: the first wait belongs to the set-up, since a learner that is ready early
    spends it on services that are still loading.
    """
    steps = [event for event in history if event.get("kind") == "step" and event["time"] >= started_at]
    if not steps:
        return (None if first_step_at is None else first_step_at - started_at), None
    if first_step_at is None:
        phases = (steps[0].get("seconds") or {}).items()
        worked = sum(number(seconds) or 0.0 for phase, seconds in phases if phase != "wait")
        first_step_at = max(started_at, steps[0]["time"] - worked)
    return first_step_at - started_at, steps[-1]["time"] - first_step_at


def _ledger(ledger: Event | None) -> dict[str, Any] | None:
    if not ledger:
        return None
    counts = {name: ledger.get(name) for name in ("admitted", "trained", "in_flight")}
    return {**counts, "dropped": dict(ledger.get("dropped") or {})}
