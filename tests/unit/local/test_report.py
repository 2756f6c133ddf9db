import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure  # noqa: TID253 - report.py imports it as well

from pacs.local.report import _draw_accuracy, _draw_gaps, _draw_phases, _draw_scores, write_report
from pacs.local.summary import evaluations_of, steps_of, summarise

START = 1_000.0
ATTACK = """<script>alert("x")</script></pre></code></style>"><img src=x onerror='alert(1)'>&amp;{{ 7 * 7 }}"""


def step(number, **figures):
    return {"kind": "step", "step": number, "time": START + number, **figures}


def full_step(number):
    return step(
        number,
        accuracy=0.5,
        score_correct_mean=None if number == 1 else 0.5,
        score_wrong_mean=-0.25,
        response_tokens_mean=60.0,
        response_tokens_max=128,
        truncated_share=0.1,
        staleness_mean=0.5,
        staleness_max=1,
        logprob_gap_max=0.002,
        tokens_per_second=700.0,
        seconds={"wait": 1.0, "logprobs": 2.0, "update": 3.0, "checkpoint": 0.0, "publish": None},
    )


def sample(label, text="the text", **changes):
    return {
        "prompt_id": "sum-1",
        "prompt": "1+1?",
        "answer": "2",
        "text": text,
        "label": label,
        "status": "ok",
        **changes,
    }


def evaluation(at_step, accuracy, *samples):
    counts = {"problems": 40, "correct": round(40 * accuracy), "invalid": 0, "temperature": 0.0}
    return {
        "kind": "evaluation",
        "step": at_step,
        "time": START,
        "policy_version": at_step,
        "accuracy": accuracy,
        **counts,
        "samples": list(samples),
    }


def publication(version, gap=0.001):
    seconds = {"pause": 0.125, "connect": 0.5, "transfer": 1.25, "verify": 0.25, "resume": 0.0}
    return {
        "kind": "publication",
        "step": version,
        "time": START,
        "policy_version": version,
        "max_logprob_gap": gap,
        "seconds": seconds,
    }


LEDGER = {"admitted": 12, "trained": 9, "dropped": {"too_long": 2}, "in_flight": 1}


class Page(HTMLParser):
    """What a browser's parser makes of the page: elements with attributes, and text by element."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self._open = [], {}, []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        for tag in self._open:
            self.texts[tag][-1] += data

    def attributes(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def report(directory, history, ledger=LEDGER, **extra):
    summary = summarise(history, ledger, started_at=START, tokens_generated=5000) | extra
    png, html = write_report(directory, history, summary)
    return png.read_bytes(), Page(html.read_text(encoding="utf-8"))


def text_of(page):
    return " ".join(page.texts["main"][0].split())


@pytest.fixture
def run_directory(tmp_path):
    directory = tmp_path / "sums"
    directory.mkdir()
    return directory


def test_the_report_tells_what_the_run_achieved(run_directory):
    history = [
        evaluation(0, 0.25, sample(0, "before text")),
        publication(1),
        full_step(1),
        full_step(2),
        evaluation(2, 0.5, sample(1, "after text")),
    ]

    png, page = report(run_directory, history)

    text = text_of(page)
    assert page.texts["h1"] == ["sums"]
    assert "25.0% → 50.0%" in text
    assert (
        "on 40 problems the policy was not trained on, sampled at temperature 0. One problem is 2.5 percentage" in text
    )
    assert page.texts["pre"] == ["1+1?", "before text", "after text"]
    assert "Of 1 problems whose completions were kept, 1 went from wrong to right" in text
    cells = page.texts["td"]
    assert cells[-15:-8] == ["2", "2", "50.0%", "20", "40", "0", "0"]
    assert cells[-8:] == ["1", "1", "0.12", "0.50", "1.25", "0.25", "0.00", "1.0e-03"]
    assert "It balances." in text
    assert sorted(path.name for path in run_directory.iterdir()) == ["report.html", "report.png"]
    assert png.startswith(b"\x89PNG\r\n")


def test_what_a_model_or_a_data_set_wrote_stays_text(run_directory):
    bad = {"prompt": ATTACK, "answer": ATTACK, "status": ATTACK, "prompt_id": ATTACK}
    history = [evaluation(0, 0.0, sample(0, ATTACK, **bad)), evaluation(3, 1.0, sample(1, ATTACK, **bad))]
    ledger = {**LEDGER, "dropped": {ATTACK: 2}}

    _, page = report(run_directory, history, ledger, run=ATTACK, **{ATTACK: ATTACK})

    assert page.texts["pre"] == [ATTACK] * 3
    assert page.texts["code"][0] == ATTACK
    assert page.texts["h1"] == [ATTACK]
    assert not {"script", "iframe", "object", "embed", "link", "form"} & {tag for tag, _ in page.elements}
    assert not [
        name for _, attributes in page.elements for name in attributes if name.startswith("on") or name == "style"
    ]
    assert [set(image) for image in page.attributes("img")] == [{"alt", "src"}]


def test_the_policy_allows_this_style_sheet_and_nothing_that_runs(run_directory):
    _, page = report(run_directory, [])

    [policy] = [
        meta["content"] for meta in page.attributes("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    [style] = page.texts["style"]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert dict(part.split(" ", 1) for part in policy.split("; ")) == {
        "default-src": "'none'",
        "img-src": "data:",
        "style-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


def test_the_page_needs_no_other_file(run_directory):
    png, page = report(run_directory, [full_step(1)])

    [image] = page.attributes("img")
    assert base64.b64decode(image["src"].removeprefix("data:image/png;base64,")) == png
    html = (run_directory / "report.html").read_text()
    assert not re.search(r"(src|href)=\"(?!data:)|url\(|@import", html)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [step(1)],
        [evaluation(0, 0.25)],
        [step(1, seconds=None), {"kind": "publication", "step": 1, "time": START, "policy_version": 1}],
        [
            {"kind": "evaluation", "step": n, "time": START, "samples": [{"prompt_id": 1, "label": None}]}
            for n in (0, 5)
        ],
        [step(n, accuracy=float("nan"), logprob_gap_max=0.0, staleness_max=0) for n in range(1, 400)],
    ],
    ids=["empty", "bare step", "one evaluation", "bare publication", "bare samples", "long and flat"],
)
def test_missing_figures_are_dashes_and_never_an_error(run_directory, history):
    png, page = report(run_directory, history, ledger=None)

    assert "–" in text_of(page)
    assert "nan" not in text_of(page)
    assert len(png) > 10_000


def test_a_drop_is_shown_as_a_drop_and_a_ledger_that_does_not_balance_is_told(run_directory):
    _, page = report(run_directory, [evaluation(0, 0.5), evaluation(3, 0.25)], {**LEDGER, "in_flight": 0})

    assert {"class": "down"} in page.attributes("span")
    assert {"class": "up"} not in page.attributes("span")
    assert "It does not balance" in text_of(page)


def test_long_and_broken_text_is_cut_and_written(run_directory):
    text = "begin \ud800\x1b[2J" + "x" * 20_000 + " end"
    history = [evaluation(0, 0.0, sample(0, text)), evaluation(3, 0.0, sample(-1, ""))]

    _, page = report(run_directory, history)

    before = page.texts["pre"][1]
    assert before.startswith("begin ?�[2J")
    assert before.endswith("x end")
    assert "characters left out" in before
    assert len(before) < 7_000


def axes_after(draw, *arguments):
    axes = Figure().add_subplot()
    draw(axes, *arguments)
    return axes, [text.get_text() for text in axes.texts]


def test_accuracy_curves_end_in_their_last_numbers():
    history = [evaluation(0, 0.25), evaluation(2, 0.475), step(1, accuracy=0.25), step(2, accuracy=0.5)]

    axes, texts = axes_after(_draw_accuracy, steps_of(history), evaluations_of(history))

    assert {"50.0%", "47.5%"} <= set(texts)
    heights = [text.xy[1] for text in axes.texts if text.get_text().endswith("%")]
    assert abs(heights[0] - heights[1]) > 0.08, "the two labels would cover each other"


def test_steps_without_a_correct_completion_leave_the_score_out():
    axes, texts = axes_after(_draw_scores, [full_step(1), full_step(2), full_step(3)])

    assert list(axes.lines[0].get_xdata()) == [2.0, 3.0]
    assert {"+0.50", "−0.25"} <= set(texts)


def test_phases_stack_up_to_the_step_time_and_long_runs_are_averaged():
    axes, _ = axes_after(_draw_phases, [full_step(number) for number in range(1, 601)])

    assert [area.get_label() for area in axes.collections] == ["wait", "logprobs", "update"]
    assert axes.collections[-1].get_datalim(axes.transData).y1 == 6.0
    assert len(axes.collections[0].get_paths()[0].vertices) < 600


def test_gaps_of_zero_do_not_break_the_scale():
    assert axes_after(_draw_gaps, [step(1, logprob_gap_max=0.0)], [])[0].get_yscale() == "linear"
    assert axes_after(_draw_gaps, [step(1, logprob_gap_max=0.1)], [])[0].get_yscale() == "log"
