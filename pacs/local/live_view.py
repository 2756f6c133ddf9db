"""A run as seen from a terminal: one live panel there, plain lines where the output is a pipe or a log.

Texts that come from services or from a model are shown as they are: they become ``Text``, never markup, and
lose every character that a terminal would act on.
"""

import itertools
import statistics
import time
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import TracebackType
from typing import Self

from rich import box
from rich.align import Align
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from pacs.local.summary import Event, evaluations_of, number, steps_of

__all__ = ["LiveView", "seconds_left", "shown_duration", "sparkline"]

PANEL_WIDTH = 96
SPARKLINE_WIDTH = 24
TEXT_LIMIT = 400
# A service beats every few seconds; silence of this length deserves a look.
QUIET_SECONDS = 15.0
# The pace of the latest steps tells more than the mean: completions grow longer while the policy learns.
PACE_STEPS = 20
STATE_STYLES = {"running": "bold green", "finished": "bold green", "failed": "bold red", "paused": "bold yellow"}
UNKNOWN = "–"


class LiveView:
    """Shows set-up notes and then the state of a run until the context is left.

    Args:
        console: where to write; standard output by default.
        clock: epoch seconds, the clock of the history's ``time``.

    """

    def __init__(self, console: Console | None = None, *, clock: Callable[[], float] = time.time) -> None:
        self._console = console or Console()
        self._clock = clock
        self._started_at = clock()
        self._run: Event | None = None
        self._history: Sequence[Event] = ()
        self._said: set[Hashable] = set()
        self._waiting_for = ""
        self._live: Live | None = None
        if _can_redraw(self._console):
            self._live = Live(console=self._console, get_renderable=self._render, refresh_per_second=2)

    def __enter__(self) -> Self:
        if self._live:
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def note(self, text: str) -> None:
        """Say one line that stays on the screen, such as the phase of the set-up that begins."""
        elapsed = shown_duration(self._clock() - self._started_at)
        if self._live:
            self._console.print(Text.assemble((f"{elapsed:>8}  ", "dim"), _shown(text)))
        else:
            self._say(text)

    def update(self, run: Event, history: Sequence[Event]) -> None:
        """Show the run's latest state.

        Args:
            run: the run as control serves it; numbers that are not known yet are null.
            history: all events recorded so far.

        """
        self._run, self._history = run, history
        if self._live:
            self._live.refresh()
        else:
            self._say_news(run, history)

    def _render(self) -> RenderableType:
        now = self._clock()
        if self._run is None:
            return Spinner("dots", Text(f" setting up, {shown_duration(now - self._started_at)}", style="dim"))
        return _panel(self._run, self._history, now, now - self._started_at, self._console.width)

    def _say_news(self, run: Event, history: Iterable[Event]) -> None:
        for event in history:
            line = _line(event, run)
            # A resumed run brings the history of its earlier starts along.
            if line and event["time"] >= self._started_at:
                self._say_once((event["kind"], event["step"], event["time"]), line)
        for agent in run.get("agents") or []:
            if error := agent.get("fenced_error"):
                self._say_once((agent.get("agent_id"), error), f"{agent.get('agent_id')} is fenced: {error}")
        waiting_for = str(run.get("waiting_for") or "")
        if waiting_for and waiting_for != self._waiting_for:
            self._say(f"waiting for {waiting_for}")
        self._waiting_for = waiting_for

    def _say_once(self, key: Hashable, line: str) -> None:
        if key not in self._said:
            self._said.add(key)
            self._say(line)

    def _say(self, line: str) -> None:
        encoding = self._console.encoding
        safe = _shown(line).plain.encode(encoding, "replace").decode(encoding)
        self._console.file.write(safe + "\n")
        self._console.file.flush()


def sparkline(values: Sequence[float], width: int = SPARKLINE_WIDTH) -> str:
    """Shares between 0 and 1 as a row of bars of fixed scale, the whole course squeezed into ``width`` characters."""
    bars = "▁▂▃▄▅▆▇█"
    count = min(width, len(values))
    edges = [round(place * len(values) / count) for place in range(count + 1)] if count else [0]
    means = [statistics.fmean(values[begin:end]) for begin, end in itertools.pairwise(edges)]
    return "".join(bars[round(min(1.0, max(0.0, mean)) * (len(bars) - 1))] for mean in means)


def seconds_left(steps: Sequence[Event], max_steps: int, now: float) -> float | None:
    """Seconds until ``max_steps`` at the pace of the latest steps; None before the second step.

    Pauses such as the hours between a stop and a resume do not count as pace.
    """
    times: list[float] = [step["time"] for step in steps[-PACE_STEPS - 1 :]]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    if not gaps:
        return None
    usual = statistics.median(gaps)
    pace = statistics.fmean([gap for gap in gaps if gap <= 10 * usual] or gaps)
    steps_left: int = max_steps - steps[-1]["step"]
    return max(0.0, steps_left * pace - max(0.0, now - times[-1]))


def shown_duration(seconds: float | None) -> str:
    """A duration in the two units a person would use."""
    if seconds is None:
        return UNKNOWN
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def _can_redraw(console: Console) -> bool:
    """A real terminal that draws block characters: forced colours in a CI log do not make one."""
    is_terminal = console.is_terminal and not console.is_dumb_terminal and console.file.isatty()
    return is_terminal and console.encoding.startswith("utf")


def _shown(text: object, style: str = "") -> Text:
    """Any text on one line, without control, escape and direction characters."""
    one_line = " ".join(str(text).split())
    harmless = "".join("�" if unicodedata.category(char).startswith("C") else char for char in one_line)
    cut = harmless if len(harmless) <= TEXT_LIMIT else harmless[: TEXT_LIMIT - 1] + "…"
    return Text(cut, style=style)


def _figure(value: object, form: str) -> str:
    known = number(value)
    return UNKNOWN if known is None else format(known, form)


def _line(event: Event, run: Event) -> str:
    accuracy = _figure(event.get("accuracy"), ".1%")
    if event.get("kind") == "evaluation":
        counts = f"{_figure(event.get('correct'), '.0f')} of {_figure(event.get('problems'), '.0f')}"
        invalid = f", {event['invalid']} invalid" if event.get("invalid") else ""
        return f"evaluation at step {event['step']}: held-out accuracy {accuracy} ({counts}{invalid})"
    if event.get("kind") != "step":
        return ""
    parts = [
        f"step {event['step']}/{_figure(run.get('max_steps'), '.0f')}",
        f"train accuracy {accuracy}",
        f"loss {_figure(event.get('loss'), '.4f')}",
        f"{_figure(event.get('tokens_per_second'), ',.0f')} tokens/s",
        f"staleness {_figure(event.get('staleness_max'), '.0f')}",
    ]
    return ", ".join([*parts, "skipped: loss or gradient was not finite"] if event.get("skipped") else parts)


def _panel(run: Event, history: Iterable[Event], now: float, elapsed: float, width: int) -> Panel:
    events = list(history)
    parts: list[RenderableType] = [
        _header(run, elapsed),
        _progress(run, steps_of(events), now),
        Text(),
        _figures(run, events),
        _stages(run),
        _ledger(run),
        _services(run),
    ]
    if run.get("waiting_for"):
        parts.append(Text.assemble(("waiting for  ", "dim"), _shown(run["waiting_for"], "yellow")))
    title = Text.assemble("PACS  ", _shown(run.get("run") or "", "bold"))
    return Panel(
        Group(*parts), title=title, title_align="left", box=box.ROUNDED, width=min(width, PANEL_WIDTH), padding=(0, 1)
    )


def _header(run: Event, elapsed: float) -> Text:
    state = str(run.get("state") or "starting")
    step, last = _figure(run.get("step"), ".0f"), _figure(run.get("max_steps"), ".0f")
    header = Text.assemble(_shown(f"● {state}", STATE_STYLES.get(state, "bold cyan")), f"   step {step} of {last}")
    header.append(f"   policy v{_figure(run.get('policy_version'), '.0f')}")
    header.append(f"   reference epoch {_figure(run.get('reference_epoch'), '.0f')}", style="dim")
    return header.append(f"   {shown_duration(elapsed)}", style="dim")


def _progress(run: Event, steps: Sequence[Event], now: float) -> Table:
    step, last = number(run.get("step")) or 0.0, number(run.get("max_steps"))
    left = seconds_left(steps, int(last), now) if last and run.get("state") == "running" else None
    row = Table.grid(padding=(0, 2), expand=True)
    row.add_column(ratio=1)
    row.add_column(width=22)
    bar = ProgressBar(total=last or 1.0, completed=step, complete_style="cyan", finished_style="green")
    row.add_row(
        bar, f"{step / last if last else 0:>4.0%}" + (f"  {shown_duration(left)} left" if left is not None else "")
    )
    return row


def _figures(run: Event, history: Sequence[Event]) -> Table:
    train = [value for step in steps_of(history) if (value := number(step.get("accuracy"))) is not None]
    heldout = [value for event in evaluations_of(history) if (value := number(event.get("accuracy"))) is not None]
    first = f"  from {heldout[0]:.1%}" if len(heldout) > 1 else ""
    table = Table.grid(padding=(0, 2))
    for style in ("dim", "bold", ""):
        table.add_column(style=style, no_wrap=True)
    table.add_row("train accuracy", _figure(run.get("train_accuracy"), ".1%"), Text(sparkline(train), "cyan"))
    course = Text.assemble((sparkline(heldout), "green"), (first, "dim"))
    table.add_row("held-out accuracy", _figure(run.get("heldout_accuracy"), ".1%"), course)
    tokens = f"{_figure(run.get('tokens_generated'), ',.0f')} tokens"
    staleness = f"staleness max {_figure(run.get('staleness_max'), '.0f')}"
    table.add_row("tokens/s", _figure(run.get("tokens_per_second"), ",.0f"), Text(f"{tokens}   {staleness}", "dim"))
    return table


def _stages(run: Event) -> Table:
    queues = run.get("queues") or {}
    row = Table.grid(padding=(0, 1))
    cells: list[RenderableType] = []
    for name in ("prompts", "completions", "labeled"):
        waiting = number(queues.get(name))
        count = Text(UNKNOWN if waiting is None else f"{waiting:.0f}", "bold cyan" if waiting else "dim")
        cells += [_box(name, count), Text("\n→", style="dim")]
    cells.append(_box("learner", Text(f"step {_figure(run.get('step'), '.0f')}", "bold")))
    row.add_row(*cells)
    return row


def _box(title: str, content: Text) -> Panel:
    return Panel(Align.center(content), title=title, box=box.ROUNDED, width=17, border_style="dim", padding=(0, 1))


def _ledger(run: Event) -> Text:
    ledger = run.get("ledger") or {}
    line = Text.assemble(("groups  ", "dim"), f"admitted {_figure(ledger.get('admitted'), ',.0f')}")
    line.append(f" = trained {_figure(ledger.get('trained'), ',.0f')}")
    dropped = ledger.get("dropped") or {}
    reasons = ", ".join(f"{reason} {count}" for reason, count in dropped.items())
    line.append(f" + dropped {sum(dropped.values()):,}")
    if reasons:
        line.append(" ").append_text(_shown(f"({reasons})", "dim"))
    return line.append(f" + in flight {_figure(ledger.get('in_flight'), ',.0f')}")


def _services(run: Event) -> Group:
    agents = run.get("agents") or []
    starting = run.get("state") == "starting"
    names, troubles = Text.assemble(("services  ", "dim")), []
    for agent in agents:
        trouble = _trouble(agent)
        style = "green" if not trouble else "yellow" if starting and not agent.get("fenced_error") else "red"
        names.append_text(_shown(f"● {agent.get('agent_id')}", style)).append("  ")
        if trouble:
            troubles.append(Text.assemble("  ", _shown(f"{agent.get('agent_id')}: {trouble}", style)))
    return Group(names, *troubles)


def _trouble(agent: Event) -> str:
    quiet = number(agent.get("heartbeat_age_seconds"))
    if agent.get("fenced_error"):
        return f"fenced: {agent['fenced_error']}"
    if quiet is not None and quiet > QUIET_SECONDS:
        return f"not heard of for {shown_duration(quiet)}"
    if not agent.get("ready"):
        return f"not ready, waiting for {agent.get('waiting_for') or 'its start'}"
    return ""
