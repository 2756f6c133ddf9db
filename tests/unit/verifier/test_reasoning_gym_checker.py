import inspect
import re
import warnings
from pathlib import Path

import pytest

from pacs.errors import BadInput
from pacs.wire.groups import Label
from services.verifier.checkers.reasoning_gym import EVALUATES_TEXT, ReasoningGymChecker
from services.verifier.checkers.reasoning_gym_rules import RULES

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


async def test_an_answer_the_scorer_cannot_read_is_wrong_and_an_entry_it_cannot_read_is_not_judged(checker):
    factors = {"family": "prime_factorization", "entry": {"answer": "2 × 3", "metadata": {}}}
    assert (await checker.check("2 × 3", "2 × 3", factors)).status == "ok"
    assert (await checker.check("two times three", "2 × 3", factors)).status == "wrong"
    broken = {"family": "prime_factorization", "entry": {"answer": "two times three", "metadata": {}}}
    judgement = await checker.check("2 × 3", "2 × 3", broken)
    assert (judgement.status, judgement.label) == ("error", Label.INVALID)


async def test_gold_checks_tell_what_json_carries(checker):
    assert (await checker.check_gold("42", SUM)).label is Label.CORRECT
    assert (await checker.check_gold("41", SUM)).label is Label.WRONG
    assert (await checker.check_gold("", SUM)).label is Label.WRONG


@pytest.mark.parametrize("task_data", [{}, {"family": "chain_sum"}, {"family": 3, "entry": {}}, {"entry": {}}])
async def test_refuses_rows_without_family_or_entry(checker, task_data):
    with pytest.raises(BadInput, match="family"):
        await checker.check("42", "42", task_data)


async def test_refuses_unknown_families_and_names_the_known(checker):
    with pytest.raises(BadInput, match=r"no_such_family.*chain_sum"):
        await checker.check("42", "42", {"family": "no_such_family", "entry": {}})


async def test_the_options_of_a_family_are_those_of_its_scorer(checker):
    entry = {"answer": "0.5", "metadata": {}}
    task_data = {"family": "decimal_arithmetic", "entry": entry, "options": {"max_num_decimal_places": 1}}
    assert (await checker.check("0.6", "0.5", task_data)).status == "ok"
    assert (await checker.check("0.6", "0.5", {**task_data, "options": {}})).status == "wrong"


async def test_a_composite_is_scored_by_the_family_its_entry_comes_from(checker):
    part = {**SUM["entry"], "metadata": {"source_dataset": "chain_sum"}}
    assert (await checker.check("42.0", "42", {"family": "composite", "entry": part})).status == "ok"
    assert (await checker.check("43", "42", {"family": "composite", "entry": part})).status == "wrong"
    with pytest.raises(BadInput, match="source_dataset"):
        await checker.check("43", "42", {"family": "composite", "entry": SUM["entry"] | {"metadata": {}}})


def test_every_scorer_that_evaluates_text_is_in_the_sandbox_or_has_a_rule_of_ours(datasets):
    evaluates = re.compile(r"\beval\(|\bexec\(|parse_expr\(|sympify\(")
    found = {name for name, (cls, _) in datasets.items() if evaluates.search(inspect.getsource(cls.score_answer))}
    assert len(found) > 5
    assert found - {"propositional_logic"} <= EVALUATES_TEXT | set(RULES)
    assert set(datasets) >= EVALUATES_TEXT | set(RULES)


PAYS_WRONG_ANSWERS = {
    "coin_flip": lambda entry: "0",
    "complex_arithmetic": lambda entry: "nan",
    "countdown": lambda entry: f"{entry['metadata']['target']} # {entry['answer']}",
    "figlet_font": lambda entry: entry["answer"] + "S",
    "game_of_life": lambda entry: entry["answer"][:-1] + ", [7]]",
    "game_of_life_halting": lambda entry: "perhaps",
    "gsm_symbolic": lambda entry: f"-{entry['answer']}",
    "letter_jumble": lambda entry: entry["answer"] + " too",
    "number_sorting": lambda entry: str(["nan"] * entry["answer"].count(",") + ["nan"]),
    "puzzle24": lambda entry: "6 * 4 * 1 * 1",
    "word_sorting": lambda entry: entry["answer"] + ", zebra",
    "time_intervals": lambda entry: entry["answer"] + " or 7 days",
    "fraction_simplification": lambda entry: entry["answer"] + r" or $\frac{5}{7}$",
}
OPTIONS = {"figlet_font": {"min_word_len": 10, "max_word_len": 10}, "time_intervals": {"task_types": ["date"]}}


@pytest.mark.parametrize("family", sorted(PAYS_WRONG_ANSWERS))
async def test_wrong_answers_that_the_scorers_pay_are_wrong(checker, datasets, family):
    cls, config = datasets[family]
    options = OPTIONS.get(family, {})
    dataset = cls(config=config(size=4, seed=3, **options))
    wrong = PAYS_WRONG_ANSWERS[family]
    entries = [entry for entry in dataset if wrong(entry) not in (entry["answer"], "")]
    if family != "countdown":  # its scorer sees the comment's numbers, but one number too many before it
        assert any(dataset.score_answer(wrong(entry), entry) == 1.0 for entry in entries), "no rule of ours is needed"
    for entry in entries:
        task_data = {"family": family, "entry": entry, "options": options}
        assert (await checker.check(f"<answer>{wrong(entry)}</answer>", "", task_data)).status == "wrong"
        assert (await checker.check_gold(entry["answer"], task_data)).status == "ok"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("(1 + 2) * 3", "ok"),
        ("3 * (2 + 1)", "ok"),
        ("9", "wrong"),
        ("9 + 0 * 1", "wrong"),
        ("2 ** 3 + 1", "wrong"),
        ("(1 + 2) * 3 # 4", "wrong"),
        ("__import__('os').abort()", "wrong"),
        ("(1 + 2) * 3 / 0", "wrong"),
        ("(" * 500 + "9" + ")" * 500, "wrong"),
    ],
)
async def test_countdown_is_arithmetic_with_the_numbers_given(checker, answer, status):
    entry = {"answer": "(1 + 2) * 3", "metadata": {"numbers": [3, 2, 1], "target": 9}}
    assert (await checker.check(answer, "", {"family": "countdown", "entry": entry})).status == status
