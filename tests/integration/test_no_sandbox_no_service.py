"""Where no sandbox starts nothing is run, unless weak isolation was asked for; then every result says so."""

import pytest
from prometheus_client import CollectorRegistry

from pacs.errors import BadInput
from pacs.runtime.config import VerifierSection
from pacs.testing import make_config
from services.verifier.cache import VerdictCache
from services.verifier.checkers.registry import Registry, builtin_checkers
from services.verifier.handler import VerifierHandler
from services.verifier.metrics import VerifierMetrics
from services.verifier.sandbox import zygote_link
from services.verifier.sandbox.command import make_launch
from services.verifier.sandbox.runs import RunLost
from services.verifier.starting import start_checker
from tests.unit.verifier.test_verifier_handler import make_group

pytestmark = pytest.mark.anyio

MAKE_LAUNCH = make_launch
CODE = {"tests": {"kind": "stdio", "tests": [{"input": "1", "output": "1"}]}, "solution": "print(input())"}
SUM = {"family": "chain_sum", "entry": {"question": "What is 40 + 2?", "answer": "42", "metadata": {}}}
INSERTION = {"family": "string_insertion", "entry": {"question": "?", "answer": "AB", "metadata": {}}}


def registry(isolation):
    section = VerifierSection(sandbox={"isolation": isolation, "slots": 1, "cpu_seconds": 1})
    return Registry(builtin_checkers(section))


@pytest.fixture
def nothing_but_weak_starts(monkeypatch):
    def launch(mode, *arguments):
        if mode != "weak":
            raise RunLost(f"no {mode} here")
        return MAKE_LAUNCH(mode, *arguments)

    monkeypatch.setattr(zygote_link, "make_launch", launch)


def data_of(**data):
    return make_config({f"data.{name}": value for name, value in data.items()}).data


NEED_A_SANDBOX = [
    {"task": "code"},
    {"source": "reasoning_gym", "family": "n_queens", "path": None},
    {
        "source": "reasoning_gym",
        "family": "composite",
        "family_options": {"datasets": [{"name": "gcd"}, {"name": "spiral_matrix"}]},
        "path": None,
    },
]


@pytest.mark.parametrize("data", NEED_A_SANDBOX)
@pytest.mark.parametrize("isolation", ["auto", "strong", "landlock"])
@pytest.mark.usefixtures("nothing_but_weak_starts")
async def test_no_sandbox_no_service(data, isolation):
    checkers = registry(isolation)
    with pytest.raises(BadInput, match=r"programs need a sandbox.*no .* here"):
        await start_checker(checkers, data_of(**data))
    for task, task_data in (("code", CODE), ("reasoning_gym", INSERTION)):
        with pytest.raises(BadInput, match="programs need a sandbox"):
            await checkers.get(task).check("<answer>BA</answer>\n```\nprint(1)\n```", "", task_data)
    await checkers.close()


@pytest.mark.usefixtures("nothing_but_weak_starts")
async def test_what_runs_no_programs_serves_without_a_sandbox():
    checkers = registry("auto")
    await start_checker(checkers, data_of(task="exact"))
    await start_checker(checkers, data_of(source="reasoning_gym", family="chain_sum", path=None))
    assert (await checkers.get("exact").check("42", "42", {})).status == "ok"
    await checkers.close()


@pytest.mark.parametrize("data", NEED_A_SANDBOX[:1])
@pytest.mark.usefixtures("nothing_but_weak_starts")
async def test_weak_serves_where_it_was_asked_for_and_is_carried_in_every_result(data, caplog):
    checkers = registry("weak")
    await start_checker(checkers, data_of(**data))
    assert "ISOLATION IS WEAK" in caplog.text
    judged = [
        await checkers.get("code").check("```\nprint(input())\n```", "", CODE),
        await checkers.get("code").check("no program", "", CODE),
        await checkers.get("code").check_gold("", CODE),
        await checkers.get("math").check(r"\boxed{x+1}", "1+x", {}),
        await checkers.get("math").check(r"\boxed{2}", "2", {}),
        await checkers.get("reasoning_gym").check("42", "42", SUM),
        await checkers.get("exact").check("42", "42", {}),
    ]
    handler = VerifierHandler(checkers, VerifierMetrics(CollectorRegistry(), "demo"), VerdictCache(8))
    labeled = await handler.handle(make_group("exact", ["42", "43"]))
    await checkers.close()
    assert [j.status for j in judged] == ["ok", "no_answer", "ok", "ok", "ok", "ok", "ok"]
    assert judged[0].method == "tests: passed, weak isolation"
    methods = [j.method for j in judged] + [verdict.method for verdict in labeled.verdicts.values()]
    assert all(method.endswith(", weak isolation") for method in methods)


async def test_a_sandbox_that_holds_leaves_no_mark():
    checkers = registry("auto")
    judgement = await checkers.get("exact").check("42", "42", {})
    await checkers.close()
    assert judgement.method == "text"
