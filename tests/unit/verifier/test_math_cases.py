"""The cases that broke other graders, and how this one stands on them; docs/verifier.md tells every difference."""

import json
from pathlib import Path

import pytest

from pacs.wire.groups import Label
from services.verifier.checkers.math import MathChecker
from services.verifier.checkers.policy import MathPolicy

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[3]
CASES = [json.loads(line) for line in (ROOT / "tests" / "cases" / "math.jsonl").read_text().splitlines()]
BY_ID = {case["id"]: case for case in CASES}

WITHOUT_A_BOX = {"m025", "m034", "m041", "m054", "m055", "m119", "m120"}  # strict extraction asks for one
A_SUM_THE_GOLD_HAS_NOT = {"m186"}

# Cases marked "policy", where the default does not do what the case's author expected.
AGAINST_THE_AUTHOR = {"m048", "m118", "m123"}

OTHER_POLICIES = [
    ({"rename_constants": True}, "m048", True),
    ({"units": "match"}, "m059", False),
    ({"units": "ignore"}, "m060", True),
    ({"list_for_tuple": True}, "m084", True),
    ({"vector_for_tuple": False}, "m091", False),
    ({"degrees": "number"}, "m141", False),
    ({"degrees": "number"}, "m140", True),
    ({"rounded_gold_decimals": 2}, "m148", True),
    ({"rounded_gold_decimals": 0}, "m146", False),
    ({"approximation_digits": 6}, "m149", True),
    ({"words_for_empty_set": False}, "m154", False),
    ({"log": "ten"}, "m163", False),
    ({"inequality_for_interval": False}, "m027", False),
]


async def judge_all(cases, **options):
    checker = MathChecker(workers=1, **options)
    try:
        return {case["id"]: await checker.check(case["prediction"], case["gold"], {}) for case in cases}
    finally:
        await checker.close()


@pytest.fixture(scope="module")
async def judged():
    return await judge_all(CASES)


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


def differing(judged, cases):
    return {case["id"] for case in cases if (judged[case["id"]].label is Label.CORRECT) != case["expected"]}


async def test_what_is_no_matter_of_policy_is_right_but_for_the_known(judged):
    cases = [case for case in CASES if "policy" not in case["note"]]
    assert len(cases) == 135
    assert differing(judged, cases) == WITHOUT_A_BOX | A_SUM_THE_GOLD_HAS_NOT
    assert {case_id for case_id in WITHOUT_A_BOX if judged[case_id].status != "no_answer"} == set()


async def test_every_case_is_judged_and_none_by_running_out_of_time(judged):
    assert {case_id: j.status for case_id, j in judged.items() if j.label is Label.INVALID} == {}


async def test_matters_of_policy_are_as_configured_by_default(judged):
    cases = [case for case in CASES if "policy" in case["note"]]
    assert len(cases) == 17
    assert differing(judged, cases) == AGAINST_THE_AUTHOR


@pytest.mark.parametrize(("settings", "case_id", "correct"), OTHER_POLICIES)
async def test_matters_of_policy_follow_their_setting(policy_checker, settings, case_id, correct):
    policy_checker._policy = MathPolicy(**settings)
    case = BY_ID[case_id]
    judgement = await policy_checker.check(case["prediction"], case["gold"], {})
    assert (judgement.label is Label.CORRECT) == correct


@pytest.fixture(scope="module")
async def policy_checker():
    checker = MathChecker(workers=1)
    yield checker
    await checker.close()


async def test_the_reference_accepts_the_last_number_and_a_box_without_braces():
    judged = await judge_all([BY_ID["m111"], BY_ID["m118"], BY_ID["m041"]], extract="reference")
    assert {case_id: j.status for case_id, j in judged.items()} == {"m111": "ok", "m118": "ok", "m041": "ok"}
    assert {j.method for j in judged.values()} == {"reference"}
