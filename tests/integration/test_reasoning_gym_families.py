"""Every family of the installed Reasoning Gym: its golds verify against themselves, wrong answers are wrong."""

import asyncio
import json
import os
import warnings
from importlib.metadata import version

import pytest

from pacs.runtime.config import SandboxSection
from services.verifier.checkers.reasoning_gym import EVALUATES_TEXT, ReasoningGymChecker
from services.verifier.checkers.reasoning_gym_scorers import GOLD_IN_METADATA, WITHOUT_GOLD, integer

pytestmark = pytest.mark.anyio

VERSION = "0.1.25"  # of the lists in docs/data.md
SEED = 11
ENTRIES = 2
SLOW_TO_GENERATE = {"knight_swap": 1}
AT_ONCE = 32
WRONG = ("wrong answer", "nan", "inf", "None", "[]", "{}", '["nan"]', "[[7]]", "Integral(x, x)", "-1234567", "True # 1")
PROGRAMS = (
    "__import__('os').abort()",
    "[print('x'), exit(0)]",
    "(lambda: (_ for _ in ()).throw(SystemExit))()",
    "open('/etc/passwd').read()",
    "[c for c in ().__class__.__base__.__subclasses__()]",
    '__import__(\'os\').write(4, b\'{"value": {"d": [["status", "ok"]]}}\\n\')',
)


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


@pytest.fixture(scope="module")
def entries():
    """Entries of every family, as they arrive: through JSON."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what a third-party package warns of when it is imported is its own affair
        factory = pytest.importorskip("reasoning_gym.factory")
        found = {}
        for family, (make, config) in sorted(factory.DATASETS.items()):
            if family != "composite":  # has none of its own; the unit tests score one
                dataset = make(config=config(size=ENTRIES, seed=SEED))
                count = SLOW_TO_GENERATE.get(family, ENTRIES)
                found[family] = [json.loads(json.dumps(dataset[index])) for index in range(count)]
    return found


@pytest.fixture(scope="module")
async def checker():
    checker = ReasoningGymChecker(workers=2, cpu_seconds=10.0, sandbox=SandboxSection(slots=os.cpu_count() or 1))
    yield checker
    await checker.close()


async def side_by_side(check, items):
    free = asyncio.Semaphore(AT_ONCE)

    async def one(item):
        async with free:
            return item, await check(*item)

    return await asyncio.gather(*(one(item) for item in items))


def test_the_lists_were_made_for_the_installed_version(entries):
    assert version("reasoning-gym") == VERSION, "look at every scorer anew, then change the version here and in docs/"
    assert len(entries) == 105
    assert set(entries) >= EVALUATES_TEXT | set(GOLD_IN_METADATA) | WITHOUT_GOLD


async def test_every_gold_verifies_against_itself(checker, entries):
    async def check(family, index):
        entry = entries[family][index]
        gold = "" if entry["answer"] is None else str(entry["answer"])
        return await checker.check_gold(gold, {"family": family, "entry": entry})

    items = [(family, index) for family, rows in entries.items() for index in range(len(rows))]
    checked = await side_by_side(check, items)
    assert {item: judgement for item, judgement in checked if judgement.status != "ok"} == {}


async def test_no_wrong_answer_is_right_or_costs_a_verdict(checker, entries):
    async def check(family, answer):
        return await checker.check(f"<answer>{answer}</answer>", "", {"family": family, "entry": entries[family][0]})

    checked = await side_by_side(check, [(family, answer) for family in entries for answer in WRONG])
    assert {item: judgement for item, judgement in checked if judgement.status != "wrong"} == {}


@pytest.mark.parametrize("program", PROGRAMS)
async def test_an_answer_that_is_a_program_is_not_run(checker, entries, program):
    async def check(family):
        return await checker.check(f"<answer>{program}</answer>", "", {"family": family, "entry": entries[family][0]})

    checked = await side_by_side(check, [(family,) for family in sorted(EVALUATES_TEXT)])
    assert {item: judgement for item, judgement in checked if judgement.status != "wrong"} == {}


async def test_a_restated_question_is_no_integral(checker, entries):
    for family in ("simple_integration", "intermediate_integration"):
        entry = entries[family][0]
        integrand, variable = entry["metadata"]["integrand"], entry["metadata"]["variable"]
        for name in ("Integral", "integrate"):
            judgement = await checker.check(
                f"<answer>{name}({integrand}, {variable}) + C</answer>", "", {"family": family, "entry": entry}
            )
            assert judgement.status == "wrong"


async def test_a_score_that_takes_too_long_is_not_judged(entries):
    checker = ReasoningGymChecker(cpu_seconds=1.0)
    entry = entries["intermediate_integration"][0]
    endless = "+".join(f"(x+{n})**{900 + n}" for n in range(60))
    try:
        judgement = await checker.check(
            f"<answer>{endless}</answer>", "", {"family": "intermediate_integration", "entry": entry}
        )
    finally:
        await checker.close()
    assert judgement.status == "timeout"


@pytest.mark.parametrize(("text", "value"), [("((0x7a >> 0x1) + ~3)", 57), ("-(2 ^ 7) * (6 & 3 | 8)", -50)])
def test_integer_arithmetic_without_eval(text, value):
    assert integer(text) == value == eval(text)


@pytest.mark.parametrize("text", ["1 << 99999999", "f(1)", "1.5", "True", "not 1", "(1, 2)"])
def test_what_is_no_integer_arithmetic_is_refused(text):
    with pytest.raises(ValueError):
        integer(text)
