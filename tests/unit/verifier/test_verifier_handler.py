import asyncio
from dataclasses import replace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from pacs.errors import BadInput
from pacs.testing import assert_eventually
from pacs.wire.groups import Completion, Group, Label, Prompt
from services.verifier.cache import VerdictCache
from services.verifier.checkers import code_rows
from services.verifier.checkers.code import CodeChecker
from services.verifier.checkers.code_rows import read_task
from services.verifier.checkers.exact import ExactChecker
from services.verifier.checkers.interface import judged
from services.verifier.checkers.math import MathChecker
from services.verifier.checkers.registry import Registry
from services.verifier.handler import VerifierHandler
from services.verifier.invalid_watch import InvalidWatch
from services.verifier.metrics import VerifierMetrics

pytestmark = pytest.mark.anyio


class Faulty(ExactChecker):
    """Fails in the way its completion says."""

    name = "faulty"

    async def check(self, completion, answer, task_data):
        if completion == "raise":
            raise RuntimeError("broken")
        if completion == "refuse":
            raise BadInput("this row cannot be judged")
        return judged(0.0, "ok", "text", completion)


class Meeting(ExactChecker):
    """Answers only once all of a group are being judged."""

    name = "meeting"

    def __init__(self, size):
        self.barrier = asyncio.Barrier(size)

    async def check(self, completion, answer, task_data):
        place = await self.barrier.wait()
        return judged(0.0, "ok" if completion == "right" else "wrong", "text", str(place))


def make_group(task, texts, answer="42", finish_reasons=None):
    reasons = finish_reasons or ["stop"] * len(texts)
    prompt = Prompt(7, "row-7", np.zeros(1, np.int32), "?", task, answer, len(texts), 16, 1.0)
    completions = [
        Completion(f"7/{i}", np.zeros(1, np.int32), np.zeros(1, np.float32), (), reason, text)
        for i, (text, reason) in enumerate(zip(texts, reasons, strict=True))
    ]
    return Group(prompt, tuple(completions))


def make_handler(*checkers, cache_entries=0, watch=None):
    registry = CollectorRegistry()
    metrics = VerifierMetrics(registry, "demo")
    return VerifierHandler(Registry(checkers), metrics, VerdictCache(cache_entries), watch), registry


async def test_joins_verdicts_by_sample_id():
    handler, _ = make_handler(ExactChecker())
    labeled = await handler.handle(make_group("exact", ["42", "43", r"\boxed{42}", ""]))
    assert labeled.labels == (Label.CORRECT, Label.WRONG, Label.CORRECT, Label.WRONG)
    assert labeled.verdicts["7/3"].status == "no_answer"
    assert labeled.verdicts["7/2"].extracted == "42"


async def test_judges_the_completions_side_by_side():
    handler, _ = make_handler(Meeting(4))
    async with asyncio.timeout(10):
        labeled = await handler.handle(make_group("meeting", ["right", "no", "no", "right"]))
    assert labeled.labels == (Label.CORRECT, Label.WRONG, Label.WRONG, Label.CORRECT)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("42", "truncated"),
        (r"\boxed{42", "truncated"),
        (r"\boxed{}", "truncated"),
        (r"<think> \boxed{42}", "truncated"),
        (r"\boxed{42} and then", "ok"),
        ("<answer>42</answer> and then", "ok"),
        (r"\boxed{43} and then", "wrong"),
    ],
)
async def test_what_ran_out_of_tokens_needs_a_complete_answer(text, status):
    handler, _ = make_handler(ExactChecker())
    labeled = await handler.handle(make_group("exact", [text], finish_reasons=["length"]))
    verdict = labeled.verdicts["7/0"]
    assert verdict.status == status
    assert verdict.label is (Label.CORRECT if status == "ok" else Label.WRONG)


class Shouting(ExactChecker):
    """Answers are shouted; asks itself what a complete one is."""

    name = "shouting"

    def has_answer(self, completion, task_data):
        if completion == "?":
            raise RuntimeError("broken")
        return completion.endswith("!")


async def test_the_checker_says_what_marks_a_complete_answer(caplog):
    handler, _ = make_handler(Shouting())
    texts = ["42!", "42", r"\boxed{42!}", "?"]
    labeled = await handler.handle(make_group("shouting", texts, "42!", finish_reasons=["length"] * 4))
    assert [v.status for v in labeled.verdicts.values()] == ["ok", "truncated", "truncated", "error"]


async def test_what_ran_out_of_tokens_in_code_needs_a_closed_block():
    checker = CodeChecker()
    task_data = {"tests": {"kind": "stdio", "tests": [{"input": "", "output": "1"}]}}
    assert checker.has_answer("```python\nprint(1)\n```\nThis works bec", task_data)
    assert not checker.has_answer("```python\nprint(1)\n", task_data)
    assert not checker.has_answer("<think>```python\nprint(1)\n```\n", task_data)
    assert not checker.has_answer("print(1)", {**task_data, "extract": "whole"})


async def test_what_ran_out_of_tokens_in_mathematics_needs_a_box():
    checker = MathChecker()
    assert checker.has_answer(r"\boxed{42}, bec", {})
    assert not checker.has_answer("<answer>42</answer>", {})
    assert not checker.has_answer(r"\boxed{4} no, \boxed{42", {})


async def test_a_row_of_code_is_read_once_for_its_group(monkeypatch):
    reads = []

    def counted(row):
        reads.append(row)
        return read_task(row)

    monkeypatch.setattr(code_rows, "read_task", counted)
    handler, _ = make_handler(CodeChecker())
    group = make_group("code", ["no program"] * 4)
    task_data = {"tests": {"kind": "stdio", "tests": [{"input": "", "output": "1"}]}}
    for _ in range(2):
        await handler.handle(replace(group, prompt=replace(group.prompt, task_data=task_data)))
    assert len(reads) == 1


@pytest.mark.parametrize("fault", ["raise", "refuse"])
async def test_a_fault_of_the_checker_costs_one_sample_its_label_and_is_logged_with_ids(fault, caplog):
    handler, _ = make_handler(Faulty())
    labeled = await handler.handle(make_group("faulty", ["fine", fault]))
    assert labeled.labels == (Label.CORRECT, Label.INVALID)
    assert labeled.verdicts["7/1"].status == "error"
    assert "7/1" in caplog.text
    assert "row-7" in caplog.text


async def test_a_group_of_an_unknown_task_is_refused_as_a_whole():
    handler, _ = make_handler(ExactChecker())
    with pytest.raises(BadInput, match="chess"):
        await handler.handle(make_group("chess", ["42"]))


async def test_counts_verdicts_by_status_and_times_checks():
    handler, registry = make_handler(ExactChecker(), Faulty())
    await handler.handle(make_group("exact", ["42", "42", "43"]))
    await handler.handle(make_group("faulty", ["raise"]))

    def sample(name, **labels):
        return registry.get_sample_value(name, {"run": "demo", **labels})

    assert sample("pacs_verifier_verdicts_total", verifier="exact", verdict="ok") == 2
    assert sample("pacs_verifier_verdicts_total", verifier="exact", verdict="wrong") == 1
    assert sample("pacs_verifier_verdicts_total", verifier="faulty", verdict="error") == 1
    assert sample("pacs_verifier_check_seconds_count", verifier="exact") == 3
    assert sample("pacs_verifier_checks_in_progress", verifier="exact") == 0


async def test_a_completion_judged_before_is_not_judged_again():
    checker = Meeting(2)
    handler, registry = make_handler(checker, cache_entries=8)
    async with asyncio.timeout(10):
        first = await handler.handle(make_group("meeting", ["right", "no"]))
        again = await handler.handle(make_group("meeting", ["no", "right"]))  # the barrier would wait for one more pair
    assert [v.label for v in again.verdicts.values()] == [v.label for v in first.verdicts.values()][::-1]
    hits = registry.get_sample_value("pacs_verifier_cache_hits_total", {"run": "demo", "verifier": "meeting"})
    assert hits == 2
    assert not checker.barrier.n_waiting


async def test_a_completion_that_could_not_be_judged_is_tried_again():
    handler, registry = make_handler(Faulty(), cache_entries=8)
    for _ in range(2):
        await handler.handle(make_group("faulty", ["raise"]))
    counted = {"run": "demo", "verifier": "faulty", "verdict": "error"}
    assert registry.get_sample_value("pacs_verifier_verdicts_total", counted) == 2
    assert registry.get_sample_value("pacs_verifier_cache_hits_total", {"run": "demo", "verifier": "faulty"}) is None


async def test_a_cut_completion_is_another_one():
    handler, _ = make_handler(ExactChecker(), cache_entries=8)
    whole = await handler.handle(make_group("exact", ["42"]))
    cut = await handler.handle(make_group("exact", ["42"], finish_reasons=["length"]))
    assert (whole.labels, cut.labels) == ((Label.CORRECT,), (Label.WRONG,))


async def test_verdicts_that_judge_nothing_pause_the_run():
    reasons = []

    async def pause(reason):
        reasons.append(reason)
        return True

    watch = InvalidWatch(4, 0.5, pause)
    stop = asyncio.Event()
    task = asyncio.create_task(watch.run(stop))
    handler, registry = make_handler(ExactChecker(), Faulty(), watch=watch)
    await handler.handle(make_group("exact", ["42", "43"]))
    await handler.handle(make_group("faulty", ["raise", "raise"]))
    assert registry.get_sample_value("pacs_verifier_invalid_share", {"run": "demo"}) == 0.5
    await handler.handle(make_group("faulty", ["raise"]))
    await assert_eventually(lambda: reasons)
    assert "3 of the last 4 verdicts" in reasons[0]
    stop.set()
    await task


async def test_counts_where_the_reference_disagrees():
    metrics_registry = CollectorRegistry()
    metrics = VerifierMetrics(metrics_registry, "demo")
    for ours, theirs in [("ok", "ok"), ("ok", "wrong"), ("wrong", "ok"), ("wrong", "wrong"), ("wrong", "")]:
        metrics.observe("math", replace(judged(0.0, ours, "text"), reference=theirs))

    def count(outcome):
        labels = {"run": "demo", "verifier": "math", "outcome": outcome}
        return metrics_registry.get_sample_value("pacs_verifier_reference_total", labels)

    assert (count("same"), count("looser"), count("stricter")) == (2, 1, 1)
