import io

import pytest
from rich.console import Console

from pacs.local.live_view import LiveView, seconds_left, shown_duration, sparkline

START = 1_000.0


class Terminal(io.StringIO):
    def isatty(self):
        return True


def clock():
    return START


def pipe():
    output = io.StringIO()
    return output, LiveView(Console(file=output, width=80), clock=clock)


def panel(run, history=(), *, now=START):
    """What the terminal shows, and the bytes that were sent to it."""
    screen = Terminal()
    console = Console(file=screen, force_terminal=True, width=100, legacy_windows=False, _environ={"TERM": "xterm"})
    with LiveView(console, clock=lambda: now) as view:
        view.update(run, history)
    shown = Console(file=io.StringIO(), width=100, record=True)
    shown.print(view._render())
    return shown.export_text(), screen.getvalue()


def step(number, time=START, **figures):
    return {"kind": "step", "step": number, "time": time, **figures}


def evaluation(at_step, accuracy, **figures):
    return {"kind": "evaluation", "step": at_step, "time": START, "accuracy": accuracy, **figures}


def make_run(**changes):
    return {
        "run": "sums",
        "state": "running",
        "step": 2,
        "max_steps": 10,
        "policy_version": 3,
        "reference_epoch": 0,
        "train_accuracy": 0.5,
        "heldout_accuracy": 0.25,
        "tokens_per_second": 1234.5,
        "staleness_max": 1,
        "tokens_generated": 98765,
        "queues": {"prompts": 3, "completions": 0, "labeled": 7},
        "agents": [],
        "waiting_for": "groups of step 3",
        "ledger": {"admitted": 30, "trained": 24, "dropped": {"too_long": 2}, "in_flight": 4},
        **changes,
    }


def agent(agent_id="rollout-0", **changes):
    return {"agent_id": agent_id, "role": "rollout", "ready": True, "fenced_error": "", "waiting_for": "", **changes}


def test_the_panel_shows_what_a_person_asks_first():
    history = [
        evaluation(0, 0.125),
        step(1, START - 20, accuracy=0.0),
        step(2, START - 10, accuracy=1.0),
        evaluation(2, 0.25),
    ]

    shown, _ = panel(make_run(), history)

    for text in [
        "● running   step 2 of 10   policy v3",
        "20%  1 min 10 s left",
        "50.0%  ▁█",
        "25.0%  ▂▃  from 12.5%",
        "1,234",
        "admitted 30 = trained 24 + dropped 2 (too_long 2) + in flight 4",
        "waiting for  groups of step 3",
        "3       │ → │       0       │ → │       7       │ → │    step 2",
    ]:
        assert text in shown, shown


def test_unknown_numbers_are_dashes_and_not_zeros():
    shown, _ = panel({"run": "sums", "state": "starting", "step": None, "agents": None, "waiting_for": None})

    assert "step – of –" in shown
    assert "train accuracy     –" in shown
    assert "waiting for" not in shown


@pytest.mark.parametrize(
    ("trouble", "text"),
    [
        ({"fenced_error": "CUDA out of memory", "ready": False}, "rollout-0: fenced: CUDA out of memory"),
        ({"ready": False, "waiting_for": "weights of v4"}, "rollout-0: not ready, waiting for weights of v4"),
        ({"heartbeat_age_seconds": 75}, "rollout-0: not heard of for 1 min 15 s"),
    ],
)
def test_a_service_in_trouble_is_red_and_says_why(trouble, text):
    shown, sent = panel(make_run(agents=[agent("learner-0"), agent(**trouble)]))

    assert text in shown
    assert f"\x1b[31m{text}" in sent
    assert "\x1b[32m● learner-0" in sent


def test_while_everything_starts_not_ready_is_no_alarm_but_an_error_is():
    agents = [agent("rollout-0", ready=False), agent("rollout-1", ready=False, fenced_error="no such model")]

    _, sent = panel(make_run(state="starting", agents=agents))

    assert "\x1b[33m● rollout-0" in sent
    assert "\x1b[31m● rollout-1" in sent


HOSTILE = "[bold red]boom[/bold red] \x1b[2J\x1b]0;title\x07 \u202egnirts\r\n[/]"


def test_markup_and_escapes_from_outside_stay_text_in_the_panel():
    run = make_run(run=HOSTILE, waiting_for=HOSTILE, agents=[agent(HOSTILE, fenced_error=HOSTILE)])

    shown, sent = panel(run)

    assert shown.count("[bold red]boom[/bold red]") >= 3
    assert not {"\x1b[2J", "\x1b]0;", "\x07", "\u202e"} & set_of_parts(sent)


def test_markup_and_escapes_from_outside_stay_text_in_a_pipe():
    output, view = pipe()
    with view:
        view.note(HOSTILE)
        view.update(make_run(waiting_for=HOSTILE, agents=[agent(fenced_error=HOSTILE)]), [])

    text = output.getvalue()
    assert text.count("[bold red]boom[/bold red]") == 3
    assert all(char == "\n" or char.isprintable() for char in text)
    assert text.count("\n") == 3


def set_of_parts(sent):
    return {part for part in ("\x1b[2J", "\x1b]0;", "\x07", "\u202e") if part in sent}


def test_a_pipe_gets_one_line_per_news_and_no_repetition():
    output, view = pipe()
    first = evaluation(0, 0.25, problems=40, correct=10, invalid=1)
    one = step(1, accuracy=0.5, loss=0.69, tokens_per_second=1500.2, staleness_max=1)
    two = step(2, START + 5, skipped=True)
    with view:
        view.note("starting the embedded Redis")
        view.update(make_run(waiting_for="groups of step 1"), [first])
        view.update(make_run(waiting_for="groups of step 1"), [first, one])
        view.update(make_run(waiting_for=None), [first, one, two])
        view.update(make_run(waiting_for="groups of step 1"), [first, one, two])

    assert output.getvalue().splitlines() == [
        "starting the embedded Redis",
        "evaluation at step 0: held-out accuracy 25.0% (10 of 40, 1 invalid)",
        "waiting for groups of step 1",
        "step 1/10, train accuracy 50.0%, loss 0.6900, 1,500 tokens/s, staleness 1",
        "step 2/10, train accuracy –, loss –, – tokens/s, staleness –, skipped: loss or gradient was not finite",
        "waiting for groups of step 1",
    ]


def test_a_fenced_service_is_told_once_in_a_pipe():
    output, view = pipe()
    run = make_run(waiting_for=None, agents=[agent(fenced_error="out of memory", ready=False)])
    with view:
        view.update(run, [])
        view.update(run, [])

    assert output.getvalue() == "rollout-0 is fenced: out of memory\n"


def test_steps_of_an_earlier_start_are_no_news():
    output, view = pipe()
    with view:
        view.update(make_run(waiting_for=None), [step(1, START - 3600), step(2, START + 1)])

    assert [line.split(",")[0] for line in output.getvalue().splitlines()] == ["step 2/10"]


def test_a_step_done_again_after_a_resume_is_news():
    output, view = pipe()
    with view:
        view.update(make_run(waiting_for=None), [step(1), step(1, START + 9)])

    assert output.getvalue().count("step 1/10") == 2


def test_forced_colours_do_not_make_a_log_a_terminal():
    output = io.StringIO()
    with LiveView(Console(file=output, force_terminal=True, width=80), clock=clock) as view:
        view.update(make_run(), [step(1)])

    assert "\x1b" not in output.getvalue()
    assert "step 1/10" in output.getvalue()


def test_a_log_in_ascii_gets_replacements_instead_of_an_error():
    raw = io.BytesIO()
    output = io.TextIOWrapper(raw, encoding="ascii")
    LiveView(Console(file=output), clock=clock).note("step – done")

    assert raw.getvalue() == b"step ? done\n"


def test_notes_stay_above_the_panel():
    screen = Terminal()
    console = Console(file=screen, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    with LiveView(console, clock=clock) as view:
        view.note("starting [rollout]")

    assert "starting [rollout]" in screen.getvalue()


@pytest.mark.parametrize(
    ("values", "bars"),
    [([], ""), ([0.0, 0.5, 1.0], "▁▅█"), ([-1.0, 2.0], "▁█"), ([0.0] * 50 + [1.0] * 50, "▁▁██")],
)
def test_sparkline_has_a_fixed_scale_and_covers_the_whole_course(values, bars):
    assert sparkline(values, width=4) == bars


def test_time_left_follows_the_pace_and_counts_down():
    steps = [step(1, 100.0), step(2, 110.0), step(3, 120.0)]

    assert seconds_left(steps, 10, now=120.0) == 70.0
    assert seconds_left(steps, 10, now=125.0) == 65.0
    assert seconds_left(steps, 3, now=125.0) == 0.0
    assert seconds_left(steps[:1], 10, now=125.0) is None


def test_the_pause_before_a_resume_is_no_pace():
    steps = [step(n, 100.0 + 10 * n + (36_000 if n > 3 else 0)) for n in range(1, 7)]

    assert seconds_left(steps, 8, now=steps[-1]["time"]) == 20.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "–"), (0.4, "0 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s"), (7260, "2 h 01 min")]
)
def test_durations(seconds, text):
    assert shown_duration(seconds) == text
