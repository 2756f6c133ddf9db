import base64
import json
import pickle
import zlib

import pytest

from pacs.errors import BadInput
from services.verifier.checkers.code_rows import read_task
from services.verifier.checkers.code_tests import AssertTests, Call, CallTests, InputOutput, StdioTests

PROMPT = 'import math\n\ndef twice(x):\n    return 2 * x\n\ndef f(x: int) -> int:\n    """Doubles."""\n'
CHECK = "def check(candidate):\n    assert candidate(2) == twice(2)\n"


def test_our_own_rows():
    stdio = read_task({"tests": {"kind": "stdio", "tests": [{"input": "1\n", "output": "2"}]}, "solution": "print(2)"})
    assert stdio.tests == StdioTests((InputOutput("1\n", "2"),))
    assert (stdio.solution, stdio.whole) == ("print(2)", False)
    calls = read_task({"tests": {"kind": "calls", "fn": "f", "tests": [{"args": [1, [2]], "expected": {"a": None}}]}})
    assert calls.tests == CallTests("f", (Call((1, [2]), ({"a": None},)),))
    asserts = read_task({"tests": {"kind": "asserts", "code": "import math\nassert f(g(math.pi)) == len('a')"}})
    assert asserts.tests == AssertTests("import math\nassert f(g(math.pi)) == len('a')", ("f", "g"))
    assert read_task({"tests": {"kind": "asserts", "code": "assert f(1)", "names": ["f", "h"]}}).tests.names == (
        "f",
        "h",
    )
    assert read_task({"extract": "whole", "tests": {"kind": "asserts", "code": "assert f(1)"}}).whole


def test_apps_and_taco_rows():
    row = {
        "input_output": json.dumps({"inputs": ["1\n", ["2", "3"]], "outputs": ["1\n", ["2", "3"]]}),
        "solutions": json.dumps(["print(input())", "other"]),
    }
    task = read_task(row)
    assert task.tests == StdioTests((InputOutput("1\n", "1\n"), InputOutput("2\n3", "2\n3")))
    assert task.solution == "print(input())"
    calls = read_task({"input_output": {"fn_name": "f", "inputs": [[1, 2], [[3]]], "outputs": [[3], 4]}})
    assert calls.tests == CallTests("f", (Call((1, 2), ([3], 3)), Call(([3],), (4,))))


def test_human_eval_rows():
    task = read_task({"prompt": PROMPT, "test": CHECK, "entry_point": "f", "canonical_solution": "    return 2 * x\n"})
    assert task.tests.names == ("f",)
    assert task.tests.code.endswith("check(f)\n")
    assert "def twice" in task.tests.code
    assert "def f" not in task.tests.code
    assert task.solution == PROMPT + "    return 2 * x\n"
    assert task.assembled("    return twice(x)\n") == PROMPT + "    return twice(x)\n"
    whole = task.assembled("def f(x):\n    return twice(x)")
    assert whole.startswith("import math")
    assert whole.count("def f(") == 1
    assert task.assembled("def f (x): return 4").count("def f(") == 0
    assert task.assembled("def ff(x): return 4").startswith(PROMPT)


def test_mbpp_rows():
    row = {"test_list": ["assert f(1) == 2"], "test_setup_code": "y = 1", "test_imports": ["import math"]}
    task = read_task({**row, "code": "def f(x): return 2"})
    assert task.tests == AssertTests("import math\ny = 1\nassert f(1) == 2", ("f",))
    assert task.solution == "def f(x): return 2"
    shadowing = read_task({"test_list": ["assert sum(1, 2) == 4"], "code": "def sum(a, b):\n    return 4"})
    assert shadowing.tests.names == ("sum",)


def test_live_code_bench_rows():
    public = json.dumps([{"input": "1\n", "output": "2", "testtype": "stdin"}])
    private = json.dumps([{"input": "3\n", "output": "4", "testtype": "stdin"}])
    task = read_task({"public_test_cases": public, "private_test_cases": private})
    assert task.tests == StdioTests((InputOutput("1\n", "2"), InputOutput("3\n", "4")))
    functional = json.dumps([{"input": '[1, 2]\n"x"', "output": "[3]", "testtype": "functional"}])
    task = read_task({"public_test_cases": functional, "metadata": json.dumps({"func_name": "f"})})
    assert task.tests == CallTests("f", (Call(([1, 2], "x"), ([3],)),))


def test_pickled_tests_are_refused_with_the_reason():
    packed = base64.b64encode(zlib.compress(pickle.dumps("[]"))).decode()
    with pytest.raises(BadInput, match="pickle"):
        read_task({"public_test_cases": "[]", "private_test_cases": packed})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({}, "task_data of a code row"),
        ({"tests": 4}, "kind"),
        ({"tests": {"kind": "magic"}}, "stdio, calls, asserts"),
        ({"tests": {"kind": "stdio", "tests": []}}, "at least one"),
        ({"tests": {"kind": "stdio", "tests": [{"input": "", "output": "\n"}]}}, "an empty program would pass"),
        ({"tests": {"kind": "stdio", "tests": [{"input": 4, "output": "4"}]}}, "input must be text"),
        ({"tests": {"kind": "stdio", "tests": ["4"]}}, "list of objects"),
        ({"tests": {"kind": "calls", "tests": []}}, "fn must be text"),
        ({"tests": {"kind": "calls", "fn": "f", "tests": []}}, "at least one call"),
        ({"tests": {"kind": "calls", "fn": "f", "tests": [{"args": []}]}}, "expected"),
        ({"tests": {"kind": "asserts", "code": "assert f(:"}}, "does not parse"),
        ({"tests": {"kind": "asserts", "code": "f(1)"}}, "assert something"),
        ({"tests": {"kind": "asserts", "code": "assert 1 == 1"}}, "use a name"),
        ({"tests": {"kind": "asserts", "code": "assert f(1)"}, "extract": "all"}, "extract"),
        ({"input_output": "{"}, "must be JSON"),
        ({"input_output": {"inputs": ["1"], "outputs": []}}, "got 1 and 0"),
        ({"input_output": {"fn_name": "f", "inputs": ["1"], "outputs": [1]}}, "lists of arguments"),
        ({"test": CHECK, "prompt": "def f(:", "entry_point": "f"}, "prompt must be Python"),
        ({"test": CHECK, "prompt": PROMPT}, "entry_point must be text"),
        ({"public_test_cases": "[1]"}, "list of objects"),
    ],
)
def test_a_row_that_breaks_a_rule_is_refused_in_words(row, message):
    with pytest.raises(BadInput, match=message):
        read_task(row)
