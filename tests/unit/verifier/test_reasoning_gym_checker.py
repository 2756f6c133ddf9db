import inspect
import re
import warnings
from pathlib import Path

import pytest

from pacs.errors import BadInput
from pacs.wire.groups import Label
from services.verifier.checkers.reasoning_gym import EVALUATES_TEXT, PAYS_WRONG_ANSWERS, ReasoningGymChecker

pytestmark = pytest.mark.anyio

SUM = {
    "family": "chain_sum",
    "entry": {"question": "What is 40 + 2?", "answer": "42", "metadata": {"source_dataset": "chain_sum"}},
}


def exists(pid):
    return Path(f"/proc/{pid}").exists()


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def datasets():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a third-party package warns of when it is imported is its own affair
        factory = pytest.importorskip("reasoning_gym.factory")
    return factory.DATASETS


@pytest.fixture(scope="module")
async def checker():
    checker = ReasoningGymChecker(workers=1, cpu_seconds=5.0)
    yield checker
    pids = checker.pids
    await checker.close()
    assert not any(exists(pid) for pid in pids)


@pytest.mark.parametrize(
    ("completion", "status"),
    [
        ("42", "ok"),
        ("<think>40 + 2</think><answer> 42 </answer>", "ok"),
        (r"so \boxed{+42.0}", "ok"),
        ("<answer>The answer is 42</answer>", "wrong"),  # the scorer's partial credit
        ("43", "wrong"),
        ("", "no_answer"),
        ("<think>42", "truncated"),
        ("4" * 30_000, "too_complex"),
    ],
)
async def test_only_the_full_score_is_right(checker, completion, status):
    judgement = await checker.check(completion, "42", SUM)
    assert judgement.status == status
    assert judgement.label is (Label.CORRECT if status == "ok" else Label.WRONG)


async def test_a_scorer_that_raises_has_not_judged(checker):
    factors = {"family": "prime_factorization", "entry": {"answer": "2 × 3", "metadata": {}}}
    assert (await checker.check("2 × 3", "2 × 3", factors)).status == "ok"
    judgement = await checker.check("two times three", "2 × 3", factors)
    assert (judgement.status, judgement.label) == ("error", Label.INVALID)


async def test_gold_checks_tell_what_json_carries(checker):
    assert (await checker.check_gold("42", SUM)).label is Label.CORRECT
    assert (await checker.check_gold("41", SUM)).label is Label.WRONG
    assert (await checker.check_gold("", SUM)).label is Label.WRONG


@pytest.mark.parametrize("family", sorted(EVALUATES_TEXT | PAYS_WRONG_ANSWERS))
async def test_refuses_scorers_that_cannot_be_trusted(checker, family):
    with pytest.raises(BadInput, match=family):
        await checker.check("42", "42", {"family": family, "entry": {}})


@pytest.mark.parametrize("task_data", [{}, {"family": "chain_sum"}, {"family": 3, "entry": {}}, {"entry": {}}])
async def test_refuses_rows_without_family_or_entry(checker, task_data):
    with pytest.raises(BadInput, match="family"):
        await checker.check("42", "42", task_data)


async def test_refuses_unknown_families_and_names_the_known(checker):
    with pytest.raises(BadInput, match=r"no_such_family.*chain_sum"):
        await checker.check("42", "42", {"family": "no_such_family", "entry": {}})


def test_every_scorer_that_evaluates_text_is_refused(datasets):
    evaluates = re.compile(r"\beval\(|\bexec\(|parse_expr\(|sympify\(")
    found = {name for name, (cls, _) in datasets.items() if evaluates.search(inspect.getsource(cls.score_answer))}
    assert found
    assert found <= EVALUATES_TEXT
    assert set(datasets) >= EVALUATES_TEXT | PAYS_WRONG_ANSWERS


@pytest.mark.parametrize(("family", "answer"), [("coin_flip", "0"), ("complex_arithmetic", "nan")])
def test_the_scorers_that_pay_wrong_answers_still_do(datasets, family, answer):
    cls, config = datasets[family]
    dataset = cls(config=config(size=4, seed=3))
    assert any(dataset.score_answer(answer, entry) == 1.0 and entry["answer"] != answer for entry in dataset)


@pytest.mark.parametrize("family", ["leg_counting", "caesar_cipher", "gcd", "calendar_arithmetic", "maze", "sudoku"])
async def test_the_golds_of_generated_entries_verify(checker, datasets, family):
    cls, config = datasets[family]
    entry = cls(config=config(size=1, seed=7))[0]
    assert (await checker.check_gold(entry["answer"], {"family": family, "entry": entry})).status == "ok"
