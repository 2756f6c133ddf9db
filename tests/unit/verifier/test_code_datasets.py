"""Rows of code benchmarks as they are published reach the checker from a file, with the fields docs/data.md names."""

import json

import pytest

from pacs.data.problems import load_problems
from pacs.testing import make_config
from services.verifier.checkers.code_rows import read_task
from services.verifier.checkers.code_tests import AssertTests, Call, CallTests, InputOutput, StdioTests

CASES = json.dumps([{"input": "1\n", "output": "2", "testtype": "stdin"}])
CALLS = json.dumps([{"input": "1", "output": "2", "testtype": "functional"}])
APPS = {
    "problem_id": 7,
    "question": "Add one.",
    "solutions": json.dumps(["print(int(input()) + 1)"]),
    "input_output": json.dumps({"inputs": ["1\n"], "outputs": ["2\n"]}),
    "difficulty": "introductory",
    "starter_code": "",
}
HUMAN_EVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'def f(x):\n    """Add one."""\n',
    "entry_point": "f",
    "canonical_solution": "    return x + 1\n",
    "test": "def check(candidate):\n    assert candidate(1) == 2\n",
}
MBPP = {
    "task_id": 11,
    "text": "Add one.",
    "code": "def f(x):\n    return x + 1",
    "test_list": ["assert f(1) == 2"],
    "test_setup_code": "",
    "challenge_test_list": [],
}
LIVE_CODE_BENCH = {
    "question_id": "1873_A",
    "question_content": "Add one.",
    "public_test_cases": CASES,
    "private_test_cases": "[]",
    "metadata": "{}",
    "starter_code": "",
}
FUNCTIONAL = {**LIVE_CODE_BENCH, "public_test_cases": CALLS, "metadata": json.dumps({"func_name": "f"})}

DATASETS = {
    "apps": (APPS, "question", "problem_id", ["input_output", "solutions"]),
    "human_eval": (HUMAN_EVAL, "prompt", "task_id", ["prompt", "test", "entry_point", "canonical_solution"]),
    "mbpp": (MBPP, "text", "task_id", ["test_list", "test_setup_code", "code"]),
    "live_code_bench": (
        LIVE_CODE_BENCH,
        "question_content",
        "question_id",
        ["public_test_cases", "private_test_cases", "metadata"],
    ),
    "live_code_bench_functions": (
        FUNCTIONAL,
        "question_content",
        "question_id",
        ["public_test_cases", "private_test_cases", "metadata"],
    ),
}
ONE_TEST = StdioTests((InputOutput("1\n", "2"),))
TESTS = {
    "apps": StdioTests((InputOutput("1\n", "2\n"),)),
    "mbpp": AssertTests("\nassert f(1) == 2", ("f",)),
    "live_code_bench": ONE_TEST,
    "live_code_bench_functions": CallTests("f", (Call((1,), (2,)),)),
}


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", sorted(DATASETS))
def test_a_published_row_reaches_the_checker_from_a_file(tmp_path, name, ending):
    row, prompt_field, id_field, task_fields = DATASETS[name]
    path = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    else:
        path.write_text(json.dumps(row) + "\n")
    config = make_config(
        {
            "data.path": path,
            "data.task": "code",
            "data.prompt_field": prompt_field,
            "data.id_field": id_field,
            "data.task_fields": task_fields,
        }
    )
    ((problem,), _) = load_problems(config.data, 0)
    assert (problem.problem_id, problem.text, problem.answer) == (str(row[id_field]), row[prompt_field], "")
    carried = json.loads(json.dumps(dict(problem.task_data)))  # as on the wire
    task = read_task(carried)
    assert task.tests == TESTS.get(name, task.tests)
    if name in ("apps", "human_eval", "mbpp"):
        assert task.solution is not None
    if name == "human_eval":
        assert "check(f)" in task.tests.code
        assert task.solution == row["prompt"] + row["canonical_solution"]
