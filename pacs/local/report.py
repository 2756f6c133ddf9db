"""The report of a finished run: ``report.png`` with the curves and ``report.html``, one file that needs nothing else.

The page shows text that a model wrote. Every value is escaped by the template engine, the page carries no script, and
its content security policy allows none: only the style sheet with the page's own hash and images inside the file.
"""

import base64
import hashlib
import io
import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import matplotlib as mpl  # noqa: TID253 - this is the edge file of matplotlib
from matplotlib.axes import Axes  # noqa: TID253
from matplotlib.figure import Figure  # noqa: TID253
from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: TID253
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, PercentFormatter  # noqa: TID253

from pacs.local.live_view import shown_duration
from pacs.local.summary import (
    Event,
    evaluations_of,
    examples_before_after,
    number,
    publications_of,
    steps_of,
    transitions,
    write_atomically,
)

__all__ = ["write_report"]

EXAMPLES = 3
# The end of a completion holds its answer and the begin its approach; what lies between rarely helps a reader.
TEXT_LIMIT = 6_000
# More columns than this are thinner than a pixel; long runs show means of neighbouring steps.
PHASE_COLUMNS = 120
UNKNOWN = "–"

INK, MUTED, GRID, PAPER = "#1f2933", "#7b8794", "#e9ecef", "#ffffff"
BLUE, TEAL, GREEN, RED, SAND, VIOLET = "#2b6cb0", "#2c9a8f", "#2f855a", "#c05640", "#d9a441", "#7a6bb0"
PHASES = {"wait": "#cfd6dd", "logprobs": SAND, "update": BLUE, "checkpoint": VIOLET, "publish": TEAL}
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": "#b8c0c8",
    "axes.labelcolor": MUTED,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "figure.facecolor": PAPER,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}

Curve = tuple[list[float], list[float]]


def write_report(run_directory: Path, history: Sequence[Event], summary: Event) -> tuple[Path, Path]:
    """Write the figure and the page of a run into its directory.

    Args:
        run_directory: an existing directory; its name is the report's title unless the summary has ``run``.
        history: the run's events in the order they were recorded.
        summary: what ``summarise`` returned; further keys are shown as they are.

    Returns:
        The paths of ``report.png`` and ``report.html``.

    """
    picture = _figure_png(history)
    page = _page(str(summary.get("run") or run_directory.name), history, summary, picture)
    png, html = run_directory / "report.png", run_directory / "report.html"
    write_atomically(png, picture)
    # A model can write half of a surrogate pair, which no encoding has a byte for.
    write_atomically(html, page.encode("utf-8", "replace"))
    return png, html


# The page


def _page(title: str, history: Sequence[Event], summary: Event, picture: bytes) -> str:
    examples = examples_before_after(history)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "csp_hash": _csp_hash,
        "duration": lambda value: shown_duration(number(value)),
        "excerpt": _excerpt,
        "figure": _figure_text,
    }
    template = files("pacs.local").joinpath("report.html.jinja").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        title=title,
        summary=summary,
        ledger=_ledger(summary.get("ledger") or {}),
        picture=base64.b64encode(picture).decode(),
        examples=examples[:EXAMPLES],
        example_count=len(examples),
        transitions=transitions(examples),
        evaluations=evaluations_of(history),
        publications=publications_of(history),
        window=_window(steps_of(history)),
        publication_phases=["pause", "connect", "transfer", "verify", "resume"],
    )


def _csp_hash(style: str) -> str:
    """The source expression that allows exactly this style sheet (Content Security Policy Level 3, section 2.3.1)."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"


def _excerpt(text: object) -> str:
    """A model's text without control characters; of a long one the middle is left out."""
    whole = "" if text is None else str(text)
    kept = "".join("�" if unicodedata.category(char) == "Cc" and char not in "\n\t" else char for char in whole)
    if len(kept) <= TEXT_LIMIT:
        return kept
    half = TEXT_LIMIT // 2
    return f"{kept[:half]}\n\n[… {len(kept) - 2 * half:,} characters left out …]\n\n{kept[-half:]}"


def _figure_text(value: object, form: str = "") -> str:
    known = number(value)
    if known is None:
        return UNKNOWN
    return format(known, form or (",.0f" if known.is_integer() else ",.4g"))


def _ledger(ledger: Event) -> dict[str, Any] | None:
    """The ledger with its sum, and whether the identity of the four states holds."""
    admitted, trained, in_flight = (ledger.get(name) for name in ("admitted", "trained", "in_flight"))
    if admitted is None or trained is None or in_flight is None:
        return None
    dropped = ledger.get("dropped") or {}
    total = trained + sum(dropped.values()) + in_flight
    return {**ledger, "dropped": dropped, "dropped_in_all": sum(dropped.values()), "balanced": admitted == total}


# The figure


def _figure_png(history: Sequence[Event]) -> bytes:
    steps, publications = steps_of(history), publications_of(history)
    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.14, h_pad=0.14, wspace=0.04, hspace=0.04)
        figure = Figure(figsize=(11, 10.4), layout=layout)
        grid = figure.add_gridspec(3, 2)
        _draw_accuracy(figure.add_subplot(grid[0, 0]), steps, evaluations_of(history))
        _draw_scores(figure.add_subplot(grid[0, 1]), steps)
        _draw_lengths(figure.add_subplot(grid[1, 0]), steps)
        halves = grid[1, 1].subgridspec(2, 1)
        _draw_staleness(figure.add_subplot(halves[0]), steps)
        _draw_gaps(figure.add_subplot(halves[1]), steps, publications)
        _draw_phases(figure.add_subplot(grid[2, 0]), steps)
        _draw_throughput(figure.add_subplot(grid[2, 1]), steps)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def _draw_accuracy(axes: Axes, steps: Sequence[Event], evaluations: Sequence[Event]) -> None:
    train, heldout = _curve(steps, "accuracy"), _curve(evaluations, "accuracy")
    smoothed = _draw_course(axes, train, BLUE, "train")
    axes.plot(*heldout, color=GREEN, linewidth=1.8, marker="o", markersize=5, label="held-out")
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    _label_ends(axes, [(smoothed, BLUE), (heldout, GREEN)], lambda value: f"{value:.1%}")
    _finish(axes, "Accuracy", "share of completions judged correct", [train, heldout])


def _draw_scores(axes: Axes, steps: Sequence[Event]) -> None:
    correct, wrong = _curve(steps, "score_correct_mean"), _curve(steps, "score_wrong_mean")
    ends = [(_draw_course(axes, correct, GREEN, "correct"), GREEN), (_draw_course(axes, wrong, RED, "wrong"), RED)]
    if correct[0] or wrong[0]:
        axes.axhline(0, color=MUTED, linewidth=0.8)
    _label_ends(axes, ends, lambda value: f"{value:+.2f}".replace("-", "−"))
    _finish(axes, "Mean score ψ by label", "logit", [correct, wrong])


def _draw_lengths(axes: Axes, steps: Sequence[Event]) -> None:
    mean, longest = _curve(steps, "response_tokens_mean"), _curve(steps, "response_tokens_max")
    axes.plot(*longest, color=MUTED, linewidth=1, label="longest")
    smoothed = _draw_course(axes, mean, BLUE, "mean")
    axes.set_ylim(0, 1.1 * max([1.0, *mean[1], *longest[1]]))
    _label_ends(axes, [(smoothed, BLUE), (longest, MUTED)], lambda value: f"{value:,.0f}")
    truncated = _curve(steps, "truncated_share")[1]
    cut = f", truncated {truncated[0]:.0%} at first, {truncated[-1]:.0%} at last" if truncated else ""
    _finish(axes, "Response length", f"tokens{cut}", [mean, longest])


def _draw_staleness(axes: Axes, steps: Sequence[Event]) -> None:
    mean, highest = _curve(steps, "staleness_mean"), _curve(steps, "staleness_max")
    axes.set_ylim(0, 1.1 * max([1.0, *mean[1], *highest[1]]))
    axes.plot(*highest, color=MUTED, linewidth=1, drawstyle="steps-mid", label="max")
    axes.plot(*mean, color=VIOLET, linewidth=1.8, label="mean")
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    _finish(axes, "Staleness", "batches", [mean, highest], step_axis=False)


def _draw_gaps(axes: Axes, steps: Sequence[Event], publications: Sequence[Event]) -> None:
    sampled, probed = _curve(steps, "logprob_gap_max"), _curve(publications, "max_logprob_gap")
    axes.plot(*sampled, color=TEAL, linewidth=1.4, label="sampled tokens")
    axes.plot(*probed, color=SAND, linewidth=0, marker="o", markersize=2.5, label="probe at publication")
    if any(value > 0 for value in sampled[1] + probed[1]):
        axes.set_yscale("log")
        axes.yaxis.set(major_locator=LogLocator(subs=(1, 2, 5), numticks=4), minor_locator=NullLocator())
        axes.yaxis.set_major_formatter("{x:g}")
    _finish(axes, "Largest log-prob gap", "nats", [sampled, probed])


def _draw_phases(axes: Axes, steps: Sequence[Event]) -> None:
    size = math.ceil(len(steps) / PHASE_COLUMNS) or 1
    columns = [steps[begin : begin + size] for begin in range(0, len(steps), size)]
    edges = [edge for column in columns for edge in (column[0]["step"] - 0.5, column[-1]["step"] + 0.5)]
    below = [0.0] * len(edges)
    for phase, colour in PHASES.items():
        spent = [sum(_phase_seconds(step, phase) for step in column) / len(column) for column in columns]
        above = [low + spent[place // 2] for place, low in enumerate(below)]
        if any(spent):
            axes.fill_between(edges, below, above, color=colour, linewidth=0, label=phase)
        below = above
    axes.set_ylim(bottom=0)
    _finish(axes, "Step time by phase", "seconds", [(edges, below)])


def _draw_throughput(axes: Axes, steps: Sequence[Event]) -> None:
    rate = _curve(steps, "tokens_per_second")
    smoothed = _draw_course(axes, rate, BLUE, "")
    axes.set_ylim(bottom=0)
    _label_ends(axes, [(smoothed, BLUE)], lambda value: f"{value:,.0f}")
    _finish(axes, "Throughput", "response tokens per second", [rate])


def _curve(events: Iterable[Event], name: str) -> Curve:
    """Steps and values where the value is known."""
    known = [(float(event["step"]), value) for event in events if (value := number(event.get(name))) is not None]
    return [step for step, _ in known], [value for _, value in known]


def _phase_seconds(step: Event, phase: str) -> float:
    return number((step.get("seconds") or {}).get(phase)) or 0.0


def _window(values: Sequence[object]) -> int:
    """A tenth of the run, at most 25 steps; short runs are shown as they are."""
    return min(25, max(1, len(values) // 10))


def _draw_course(axes: Axes, curve: Curve, colour: str, label: str) -> Curve:
    """Draw each step faintly and the trailing mean strongly, and return the latter."""
    steps, values = curve
    window = _window(values)
    parts = [values[max(0, end - window) : end] for end in range(1, len(values) + 1)]
    means = [sum(part) / len(part) for part in parts]
    axes.plot(steps, values, color=colour, alpha=0.25, linewidth=1)
    axes.plot(steps, means, color=colour, linewidth=1.8, label=label, marker="o" if len(steps) == 1 else "")
    return steps, means


def _label_ends(axes: Axes, curves: Iterable[tuple[Curve, str]], shown: Callable[[float], str]) -> None:
    """Write each curve's last value at its right end, moved apart where they would overlap."""
    ends = sorted((values[-1], steps[-1], colour) for (steps, values), colour in curves if steps)
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    taken: list[tuple[float, float]] = []
    for value, step, colour in ends:
        free = [place + 0.085 * (high - low) for other, place in taken if abs(other - step) < 0.15 * (right - left)]
        taken.append((step, max([value, *free])))
        at: dict[str, Any] = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(shown(value), taken[-1], color=colour, fontweight="bold", annotation_clip=False, **at)


def _finish(axes: Axes, title: str, unit: str, curves: Iterable[Curve], *, step_axis: bool = True) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", color=INK, pad=20)
    under_title: dict[str, Any] = {"xycoords": "axes fraction", "xytext": (0, 6), "textcoords": "offset points"}
    axes.annotate(unit, (0, 1), color=MUTED, fontsize=8.5, **under_title)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.grid(visible=False, axis="x")
    axes.tick_params(length=0)
    if step_axis:
        axes.set_xlabel("step")
    if not any(steps for steps, _ in curves):
        axes.set(xticks=[], yticks=[], xlabel="")
        axes.text(0.5, 0.5, "not recorded", transform=axes.transAxes, color=MUTED, ha="center", va="center")
    elif axes.get_legend_handles_labels()[1]:
        place = {"loc": "lower right", "bbox_to_anchor": (1, 1), "borderaxespad": 0.2}
        axes.legend(ncols=5, handlelength=1, handletextpad=0.5, columnspacing=0.9, **place)
