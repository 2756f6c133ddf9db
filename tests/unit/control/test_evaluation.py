import asyncio

import pytest

from pacs.errors import DeadlineExceeded
from pacs.testing import make_labeled_group
from pacs.transport.interface import Stream
from pacs.wire.groups import decode_prompt, encode_labeled_group
from services.control.evaluation import evaluation_figures
from tests.control_fakes import Control, answering, make_problems

pytestmark = pytest.mark.anyio


def group(sequence, labels, **fields):
    return make_labeled_group(sequence, labels, prompt_id=f"held-{sequence}", **fields)


def test_accuracy_is_over_judged_completions_only():
    figures = evaluation_figures([group(0, (1, -1)), group(1, (0, 1))], [])
    assert figures["accuracy"] == pytest.approx(2 / 3)
    assert (figures["problems"], figures["completions"], figures["correct"], figures["invalid"]) == (2, 4, 2, 1)
    assert figures["tokens"] == 6


def test_nothing_judged_is_no_accuracy_rather_than_zero():
    assert evaluation_figures([group(0, (-1, -1))], [])["accuracy"] is None
    assert evaluation_figures([], [])["accuracy"] is None


def test_shown_samples_come_in_the_order_asked_for_and_say_what_people_need():
    groups = [group(n, (1, 0), finish_reason="length") for n in range(3)]
    shown = evaluation_figures(groups, ["held-2", "held-9", "held-0"])["samples"]
    assert [s["prompt_id"] for s in shown] == ["held-2", "held-0"]
    assert shown[0] == {
        "prompt_id": "held-2",
        "prompt": "question 2",
        "answer": "42",
        "text": "21",
        "label": 1,
        "status": "ok",
    }


class TestEvaluator:
    pytestmark = pytest.mark.redis

    @pytest.fixture
    def control(self, redis_client):
        overrides = {"evaluation.samples": 2, "evaluation.temperature": 0.5, "evaluation.wait_seconds": 10.0}
        return Control(redis_client, overrides, make_problems(training=1, heldout=4))

    async def test_every_problem_is_asked_once_and_the_version_is_recorded(self, control):
        prompts = []

        def label(prompt):
            prompts.append(prompt)
            return (1, 0) if prompt.answer != "3" else (1, 1)

        async with answering(control.evaluation, label):
            figures = await control.evaluator.evaluate(policy_version=5, step=10)
        assert figures["accuracy"] == 5 / 8
        assert (figures["policy_version"], figures["step"], figures["problems"]) == (5, 10, 4)
        assert sorted(p.prompt_id for p in prompts) == [f"held-{n}" for n in range(4)]
        assert {(p.group_size, p.temperature, p.max_tokens, p.policy_version) for p in prompts} == {(2, 0.5, 16, 5)}
        assert await control.state.evaluated_version() == 5
        assert await control.state.heldout_accuracy() == 5 / 8
        (entry,) = await control.state.history()
        assert (entry["kind"], entry["accuracy"]) == ("evaluation", 5 / 8)
        assert await control.evaluator.tokens_generated() == 4 * 3
        assert (await control.evaluation.ledger()).balances
        assert (await control.training.ledger()).admitted == 0

    async def test_problems_that_are_dropped_are_not_waited_for(self, control):
        async with answering(control.evaluation, lambda p: None if p.answer in "12" else (1, 1)):
            figures = await control.evaluator.evaluate(1, 0)
        assert (figures["problems"], figures["accuracy"]) == (2, 1.0)

    async def test_problems_dropped_while_others_are_still_being_asked_are_not_waited_for(self, control):
        admit = control.evaluation.admit

        async def admit_and_lose(sequence, payload):
            admitted = await admit(sequence, payload)
            if sequence == 0:  # a rollout that is quicker than we ask
                (delivery,) = await control.evaluation.read(Stream.PROMPTS, "w", 1, 1.0)
                await control.evaluation.drop(Stream.PROMPTS, delivery.entry_id, "prompt_too_long")
            return admitted

        control.evaluation.admit = admit_and_lose
        async with answering(control.evaluation, lambda _: (1, 0)):
            figures = await control.evaluator.evaluate(1, 0)
        assert (figures["problems"], figures["accuracy"]) == (3, 0.5)

    async def test_the_second_evaluation_counts_its_own_groups(self, control):
        async with answering(control.evaluation, lambda _: (0, 0)):
            await control.evaluator.evaluate(1, 0)
        async with answering(control.evaluation, lambda _: (1, 1)):
            assert (await control.evaluator.evaluate(2, 5))["accuracy"] == 1.0
        assert await control.evaluation.ledger() == type(await control.evaluation.ledger())(8, 8, 0, {}, 24)

    async def test_groups_left_by_an_evaluation_that_was_killed_are_not_counted(self, control):
        """One was read and not finished by the killed control, one comes back only now."""
        for sequence in range(2):
            await control.evaluation.admit(sequence, b"prompt")
            (delivery,) = await control.evaluation.read(Stream.PROMPTS, "w", 1, 1.0)
            payload = encode_labeled_group(make_labeled_group(sequence, (1, 1)))
            await control.evaluation.hand_over(Stream.PROMPTS, delivery.entry_id, Stream.LABELED, payload)
            if sequence == 0:
                await control.evaluation.read(Stream.LABELED, "control", 1, 1.0)
        async with answering(control.evaluation, lambda _: (0, 0)):
            figures = await control.evaluator.evaluate(1, 0)
        assert (figures["problems"], figures["accuracy"]) == (4, 0.0)
        ledger = await control.evaluation.ledger()
        assert ledger.balances
        assert ledger.in_flight == 0

    async def test_groups_that_do_not_come_back_end_at_the_deadline(self, redis_client):
        control = Control(redis_client, {"evaluation.wait_seconds": 0.2}, make_problems(1, 3))

        async def answer_first():
            (delivery,) = await control.evaluation.read(Stream.PROMPTS, "w", 1, 5.0)
            sequence = decode_prompt(delivery.payload).sequence
            payload = encode_labeled_group(make_labeled_group(sequence, (1,)))
            await control.evaluation.hand_over(Stream.PROMPTS, delivery.entry_id, Stream.LABELED, payload)

        answering_one = asyncio.create_task(answer_first())
        with pytest.raises(DeadlineExceeded, match=r"2 of 3 held-out groups"):
            await control.evaluator.evaluate(1, 0)
        await answering_one
        assert await control.state.evaluated_version() == 0

    @pytest.mark.parametrize(
        ("every", "due"), [(0, {0, 20}), (5, {0, 5, 10, 15, 20}), (8, {0, 8, 16, 20}), (100, {0, 20})]
    )
    async def test_the_first_every_nth_and_the_last_version_are_due(self, redis_client, every, due):
        control = Control(redis_client, {"evaluation.every_steps": every}, make_problems(1, 2))
        assert {s for s in range(21) if control.evaluator.due(s, evaluated_version=s, last_step=20)} == due
        assert control.evaluator.due(3, evaluated_version=0, last_step=20), "a resumed run without any"

    async def test_without_heldout_problems_nothing_is_due(self, redis_client):
        assert not Control(redis_client, problems=make_problems(1, 0)).evaluator.due(0, 0, 20)

    async def test_no_more_problems_than_wanted_are_asked(self, redis_client):
        control = Control(redis_client, {"evaluation.max_problems": 2}, make_problems(1, 5))
        async with answering(control.evaluation, lambda _: (1,)):
            assert (await control.evaluator.evaluate(1, 0))["problems"] == 2
