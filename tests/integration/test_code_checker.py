"""The code checker over the sandbox: benchmark solutions pass, wrong ones do not, forged messages earn nothing."""

import asyncio
import json
import re
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from pacs.errors import ServiceFailed
from pacs.runtime.config import SandboxSection
from pacs.wire.groups import Label
from services.verifier.cache import VerdictCache
from services.verifier.checkers.code import CodeChecker
from services.verifier.checkers.code_rows import read_task
from services.verifier.checkers.registry import Registry
from services.verifier.handler import VerifierHandler
from services.verifier.metrics import VerifierMetrics
from services.verifier.sandbox.inside.landlock import landlock_version
from tests.sandbox_worlds import ROOT
from tests.unit.verifier.test_verifier_handler import make_group

pytestmark = pytest.mark.anyio

DATA = ROOT.parent / "shared" / "data"
SQUARES = {"kind": "calls", "fn": "f", "tests": [{"args": [2], "expected": 4}, {"args": [3], "expected": 9}]}
ASSERTS = {"kind": "asserts", "names": ["f"], "code": "assert f(2) == 4\nassert f(3) == 9"}
ECHO = {"kind": "stdio", "tests": [{"input": "1\n", "output": "1"}, {"input": "2\n", "output": "2"}]}


@pytest.fixture(scope="module")
async def checker():
    if landlock_version() == 0:
        pytest.skip("needs a kernel with Landlock")
    made = CodeChecker(SandboxSection(slots=4, cpu_seconds=2, wall_seconds=10))
    yield made
    await made.close()


@pytest.fixture(scope="module")
async def patient_checker():
    """For honest programs only: some of MBPP's take seconds."""
    if landlock_version() == 0:
        pytest.skip("needs a kernel with Landlock")
    made = CodeChecker(SandboxSection(slots=4, cpu_seconds=20, wall_seconds=90))
    yield made
    await made.close()


async def judge(checker, program, tests, **row):
    return await checker.check(f"Here:\n```python\n{program}\n```\n", "", {"tests": tests, **row})


def human_eval_rows(row):
    return {
        "prompt": row["prompt"],
        "test": row["tests"],
        "entry_point": row["entry_point"],
        "canonical_solution": row["canonical_solution"],
    }


def mbpp_rows(row):
    return {"test_list": row["tests"], "test_setup_code": row["test_setup"], "code": row["canonical_solution"]}


@pytest.mark.parametrize(
    ("name", "read", "count"), [("humaneval", human_eval_rows, 164), ("mbpp_sanitized", mbpp_rows, 427)]
)
async def test_benchmark_solutions_pass_and_wrong_ones_do_not(patient_checker, name, read, count):
    path = DATA / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"needs {path.name} beside the repository")
    rows = {row["id"]: read(row) for row in map(json.loads, path.read_text().splitlines())}
    assert len(rows) == count
    judged = await asyncio.gather(*(patient_checker.check_gold("", row) for row in rows.values()))
    assert {i: (j.status, j.method) for i, j in zip(rows, judged, strict=True) if j.status != "ok"} == {}

    def spoiled(row):
        task = read_task(row)
        names = [n for n in task.tests.names if re.search(rf"def {n}\s*\(", task.solution)]
        wrap = "\n".join(
            f"_right_{n} = {n}\ndef {n}(*a, **k):\n    return (_right_{n}(*a, **k), 'wrong')" for n in names
        )
        assert names
        return f"```python\n{task.solution}\n{wrap}\n```"

    judged = await asyncio.gather(*(patient_checker.check(spoiled(row), "", row) for row in rows.values()))
    assert [i for i, j in zip(rows, judged, strict=True) if j.label is Label.CORRECT] == []
    assert sum(j.label is Label.INVALID for j in judged) == 0


@pytest.mark.parametrize(
    ("program", "tests", "method"),
    [
        ("print(input())", ECHO, "tests: passed"),
        ("def f(x): return x * x", SQUARES, "tests: passed"),
        ("class Solution:\n    def f(self, x): return x * x", SQUARES, "tests: passed"),
        ("from decimal import Decimal\nclass I(int): pass\ndef f(x): return I(x * x)", SQUARES, "tests: passed"),
        ("def f(x): return x * x", ASSERTS, "tests: passed"),
    ],
)
async def test_right_programs(checker, program, tests, method):
    judgement = await judge(checker, program, tests)
    assert (judgement.label, judgement.status, judgement.method) == (Label.CORRECT, "ok", method)
    assert judgement.extracted == program


@pytest.mark.parametrize(
    ("program", "tests", "method"),
    [
        ("print(1)", ECHO, "wrong_answer"),
        ("print(input()); 1/0", ECHO, "runtime_error"),
        ("while True: pass", ECHO, "cpu_limit"),
        ("print(input() * 10**7)", ECHO, "output_limit"),
        ("def g(x): return x * x", SQUARES, "no_function"),
        ("f = 4", SQUARES, "no_function"),
        ("def f(x): raise ValueError", SQUARES, "runtime_error"),
        ("def f(x): return object()", SQUARES, "wrong_answer"),
        ("def f(x): return [0] * 10**6", SQUARES, "runtime_error"),
        ("def f(", SQUARES, "runtime_error"),
        ("def g(x): return x * x", ASSERTS, "runtime_error"),
        ("def f(x): return 4", ASSERTS, "wrong_answer"),
        ("def f(x):\n    while True: pass", ASSERTS, "cpu_limit"),
        ("raise AssertionError", ASSERTS, "runtime_error"),
    ],
)
async def test_wrong_programs(checker, program, tests, method):
    judgement = await judge(checker, program, tests)
    assert (judgement.label, judgement.method) == (Label.WRONG, f"tests: {method}")


FORGED = """
import os, json
def say(*messages):
    for fd in range(64):
        for message in messages:
            try: os.write(fd, (message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\\n")
            except OSError: pass
"""


@pytest.mark.parametrize("tests", [SQUARES, ASSERTS], ids=["calls", "asserts"])
@pytest.mark.parametrize(
    "attack",
    [
        'say({"value": {"o": 0}}, {"value": 4}, {"value": 4})',
        'say({"value": {"o": 0}}, *[{"value": True}] * 9)',
        'say({"verdict": "passed"}, {"value": 4, "verdict": "passed"})',
        'say({"question": {}, "verdict": "passed"})',
        'say({"value": {"o": -1}}, {"value": {"o": 10**9}})',
        'say({"value": {"o": True}}, {"value": {"o": "0"}}, {"value": {"o": {}}})',
        'say(b"[" * 500000)',
        'say({"value": {"o": 0}}, b\'{"value": \' + b"[" * 500000)',
        'say({"value": {"o": 0}}, {"value": {"d": [[{"i": hex(i * (2**61 - 1))}, 0] for i in range(1, 30000)]}})',
        'say({"value": {"o": 0}}, {"value": {"s": [{"i": hex(i * (2**61 - 1))} for i in range(1, 30000)]}})',
        'say({"value": {"o": 0}}, {"value": {"i": "f" * 1000000}})',
        'say({"error": "AssertionError", "message": [1], "bases": 4})',
        'say({"value": {"o": 0}}, {"error": "SystemExit"}, {"error": "Unjudgeable"})',
        'say(b"x" * (1 << 22))',
        'say(b"\\xff\\xfe", b"")',
        'say({"names": []}, {"value": NotImplemented} if False else {"value": None})',
    ],
)
async def test_forged_messages_earn_nothing(checker, attack, tests):
    judgement = await judge(checker, f"{FORGED}\n{attack}\ndef f(x): return 0", tests)
    assert judgement.label is not Label.CORRECT


@pytest.mark.parametrize(
    ("tests", "program"),
    [
        ("x = [3, 1, 2]\nassert f(x) is None\nassert x == [1, 2, 3]", "def f(x): x.sort()"),
        ("assert list(f(3)) == [0, 1, 2]", "def f(n): yield from range(n)"),
        ("assert sorted(f({'b': 1, 'a': 2})) == ['a', 'b']", "def f(d): return d.keys()"),
        ("assert f(2)(3) == 6", "def f(a): return lambda b: a * b"),
        ("s = f()\ns.push(1)\nassert len(s) == 1 and s.pop() == 1 and s.name == 'n'",
         "class f:\n    name = 'n'\n    def __init__(self): self.i = []\n    def push(self, x): self.i.append(x)\n"
         "    def pop(self): return self.i.pop()\n    def __len__(self): return len(self.i)"),
        ("try:\n    f(-1)\nexcept ValueError:\n    pass\nelse:\n    assert False", "def f(x): raise ValueError(x)"),
        ("assert f('aab') and not f('b')", "import re\ndef f(s): return re.search('aa', s)"),
        ("import math\nassert math.isclose(f(2), 2 ** 0.5)", "def f(x): return x ** 0.5"),
        ("assert f([1, 2, 3])[1] == 2 and isinstance(f([1]), list)", "class L(list): pass\ndef f(x): return L(x)"),
        ("assert f(range(3)) == 3", "f = sum"),
    ],
)  # fmt: skip
async def test_asserts_see_what_python_would_show_them(checker, tests, program):
    judgement = await judge(checker, program, {"kind": "asserts", "code": tests})
    assert (judgement.status, judgement.method) == ("ok", "tests: passed")


@pytest.mark.parametrize(
    ("tests", "program"),
    [
        ("assert f(1) == 1", "class A:\n    def __eq__(s, o): return True\ndef f(x): return A()"),
        ("assert 1 in [f(1)]", "class A:\n    def __eq__(s, o): return True\ndef f(x): return A()"),
        ("assert abs(f(1) - 3) < 1", "class A:\n    def __sub__(s, o): return 0\ndef f(x): return A()"),
        ("assert {f(1)} == {1}", "class A:\n    def __hash__(s): return 1\ndef f(x): return A()"),
        ("try:\n    assert f(1) == 1\nexcept BaseException:\n    pass", "class A: pass\ndef f(x): return A()"),
    ],
)
async def test_where_an_object_would_decide_the_program_is_wrong(checker, tests, program):
    judgement = await judge(checker, program, {"kind": "asserts", "code": tests})
    assert (judgement.label, judgement.method) == (Label.WRONG, "tests: unjudgeable")


async def test_a_gold_must_pass_its_own_tests(checker):
    assert (await checker.check_gold("", {"tests": SQUARES, "solution": "def f(x): return x * x"})).status == "ok"
    assert (await checker.check_gold("", {"tests": SQUARES, "solution": "def f(x): return x"})).status == "wrong"
    assert (await checker.check_gold("", {"tests": SQUARES})).method == "parsed"


async def test_a_completion_without_a_program_costs_no_run(checker):
    assert (await checker.check("I do not know.", "", {"tests": SQUARES})).status == "no_answer"
    assert (await checker.check("x" * 2**21, "", {"tests": SQUARES, "extract": "whole"})).status == "too_complex"


async def test_a_closed_sandbox_is_a_failure_of_the_service(checker):
    closed = CodeChecker(SandboxSection(slots=1, cpu_seconds=1))
    await closed.start()
    await closed.close()
    with pytest.raises(ServiceFailed):
        await judge(closed, "print(input())", ECHO)


@pytest.mark.parametrize(("end", "status"), [("```\nSo that is", "ok"), ("", "truncated")])
async def test_a_program_that_was_complete_before_the_text_was_cut_is_judged(checker, end, status):
    text = f"Here:\n```python\ndef f(x):\n    return x * x\n{end}"
    group = make_group("code", [text], "", finish_reasons=["length"])
    group = replace(group, prompt=replace(group.prompt, task_data={"tests": SQUARES}))
    handler = VerifierHandler(Registry([checker]), VerifierMetrics(CollectorRegistry(), "demo"), VerdictCache(0))
    assert [v.status for v in (await handler.handle(group)).verdicts.values()] == [status]
