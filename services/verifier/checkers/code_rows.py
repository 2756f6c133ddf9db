"""Reads the `task_data` of a code row: our own schema, and those of APPS/TACO, HumanEval, MBPP and LiveCodeBench."""

import ast
import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from pacs.errors import BadInput
from services.verifier.checkers.code_tests import (
    Call,
    CallTests,
    CodeTask,
    InputOutput,
    StdioTests,
    Tests,
    make_assert_tests,
)

__all__ = ["TaskReader", "read_task"]

KEPT_TASKS = 32  # a few groups at once

Row = Mapping[str, Any]


class TaskReader:
    """Reads rows, and the rows read last only once: the completions of a group share their row, the very object."""

    def __init__(self) -> None:
        self._last: deque[tuple[Row, CodeTask]] = deque(maxlen=KEPT_TASKS)

    def read(self, row: Row) -> CodeTask:
        """Do as `read_task` does."""
        for known, task in self._last:
            if known is row:
                return task
        task = read_task(row)
        self._last.append((row, task))
        return task


def read_task(row: Row) -> CodeTask:
    """Tell the schema by its fields and read it.

    Raises:
        BadInput: no known schema, or a field that breaks its rules.

    """
    for field, read in SCHEMAS.items():
        if row.get(field) is not None:
            return read(row)
    raise BadInput(
        f"the task_data of a code row must have one of {', '.join(SCHEMAS)}, got {sorted(row)}; "
        "docs/sandbox.md has the schemas"
    )


def _own(row: Row) -> CodeTask:
    tests = row["tests"]
    kind = tests.get("kind") if isinstance(tests, Mapping) else None
    if not isinstance(tests, Mapping) or kind not in KINDS:
        raise BadInput(f"tests must be an object of kind {', '.join(KINDS)}, got {str(tests)[:80]!r}; mend the row")
    extract = row.get("extract", "fence")
    if extract not in ("fence", "whole"):
        raise BadInput(f"extract must be fence or whole, got {extract!r}; mend the row")
    return CodeTask(KINDS[kind](tests), _optional_text(row, "solution"), whole=extract == "whole")


def _own_stdio(tests: Row) -> Tests:
    return StdioTests(tuple(InputOutput(_text(t, "input"), _text(t, "output")) for t in _objects(tests, "tests")))


def _own_calls(tests: Row) -> Tests:
    return CallTests(_text(tests, "fn"), tuple(_own_call(test) for test in _objects(tests, "tests")))


def _own_call(test: Row) -> Call:
    if "expected" not in test:
        raise BadInput(f"a call needs the field expected, got {sorted(test)}; mend the row")
    return Call(tuple(_list(test, "args")), (test["expected"],))


def _own_asserts(tests: Row) -> Tests:
    names = tuple(map(str, _list(tests, "names"))) if "names" in tests else None
    return make_assert_tests(_text(tests, "code"), names)


def _apps(row: Row) -> CodeTask:
    """`input_output` is JSON with inputs, outputs and, for functions, fn_name; an output may be wrapped in a list."""
    described = _parsed(row, "input_output")
    if not isinstance(described, Mapping):
        raise BadInput("input_output must be a JSON object with inputs and outputs; mend the row")
    inputs, outputs = _list(described, "inputs"), _list(described, "outputs")
    if len(inputs) != len(outputs):
        raise BadInput(f"there must be an output an input, got {len(inputs)} and {len(outputs)}; mend the row")
    pairs = list(zip(inputs, outputs, strict=True))
    tests: Tests
    if described.get("fn_name"):
        tests = CallTests(_text(described, "fn_name"), tuple(_apps_call(given, wanted) for given, wanted in pairs))
    else:
        tests = StdioTests(tuple(InputOutput(_joined(given), _joined(wanted)) for given, wanted in pairs))
    return CodeTask(tests, _first_solution(row))


def _apps_call(given: Any, wanted: Any) -> Call:
    if not isinstance(given, list):
        raise BadInput(f"the inputs of a function must be lists of arguments, got {str(given)[:80]!r}; mend the row")
    unwrapped = (wanted[0],) if isinstance(wanted, list) and len(wanted) == 1 else ()
    return Call(tuple(given), (wanted, *unwrapped))


def _joined(value: Any) -> str:
    """Some rows have the lines of a text in a list."""
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _first_solution(row: Row) -> str | None:
    solutions = _parsed(row, "solutions") if row.get("solutions") else []
    return str(solutions[0]) if isinstance(solutions, Sequence) and solutions else _optional_text(row, "solution")


def _human_eval(row: Row) -> CodeTask:
    """`test` defines check(candidate); what `prompt` gives besides the function is known to program and test."""
    prompt, entry = _text(row, "prompt"), _text(row, "entry_point")
    preamble = _without_function(prompt, entry)
    tests = make_assert_tests(f"{preamble}\n{_text(row, 'test')}\ncheck({entry})\n", (entry,))
    canonical = _optional_text(row, "canonical_solution")
    return CodeTask(tests, None if canonical is None else prompt + canonical, preamble, prompt, entry)


def _without_function(prompt: str, entry: str) -> str:
    try:
        tree = ast.parse(prompt)
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"prompt must be Python up to the end of a docstring: {error}; mend the row") from None
    kept = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name == entry)]
    return "\n".join(ast.unparse(node) for node in kept)


def _mbpp(row: Row) -> CodeTask:
    """`test_list` holds asserts; `test_imports` and `test_setup_code` go before them."""
    setup = [*_list(row, "test_imports"), row.get("test_setup_code") or ""]
    solution = _optional_text(row, "code")
    return CodeTask(
        make_assert_tests("\n".join(map(str, [*setup, *_list(row, "test_list")])), solution=solution), solution
    )


def _live_code_bench(row: Row) -> CodeTask:
    """Public and private tests are JSON texts; a function's arguments are JSON, one a line."""
    cases = [*_cases(row, "public_test_cases"), *_cases(row, "private_test_cases")]
    tests: Tests
    if any(case.get("testtype") == "functional" for case in cases):
        metadata = _parsed(row, "metadata")
        function = metadata.get("func_name") if isinstance(metadata, Mapping) else None
        tests = CallTests(str(function or ""), tuple(_functional(case) for case in cases))
    else:
        tests = StdioTests(tuple(InputOutput(_text(case, "input"), _text(case, "output")) for case in cases))
    return CodeTask(tests, _optional_text(row, "solution"))


def _functional(case: Row) -> Call:
    lines = [line for line in _text(case, "input").split("\n") if line.strip()]
    return Call(tuple(_json(line, "input") for line in lines), (_json(_text(case, "output"), "output"),))


def _cases(row: Row, field: str) -> list[Row]:
    if not row.get(field):
        return []
    try:
        return _objects({field: _parsed(row, field)}, field)
    except BadInput:
        if isinstance(row[field], str) and not row[field].lstrip().startswith("["):
            raise BadInput(
                f"{field} must be JSON, got something else: LiveCodeBench packs it with pickle, which is never "
                "unpacked here as it can run code; write the tests as JSON once, where you trust the file"
            ) from None
        raise


def _parsed(row: Row, field: str) -> Any:
    value = row.get(field)
    return _json(value, field) if isinstance(value, str) else value


def _json(text: str, field: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{field} must be JSON, got {text[:40]!r}: {error}; mend the row") from None


def _text(row: Row, field: str) -> str:
    value = row.get(field)
    if not isinstance(value, str):
        raise BadInput(f"{field} must be text, got {type(value).__name__}; mend the row")
    return value


def _optional_text(row: Row, field: str) -> str | None:
    return None if row.get(field) is None else _text(row, field)


def _list(row: Row, field: str) -> list[Any]:
    value = row.get(field, [])
    if not isinstance(value, list):
        raise BadInput(f"{field} must be a list, got {type(value).__name__}; mend the row")
    return value


def _objects(row: Row, field: str) -> list[Row]:
    values = _list(row, field)
    if not all(isinstance(value, Mapping) for value in values):
        raise BadInput(f"{field} must be a list of objects; mend the row")
    return values


KINDS = {"stdio": _own_stdio, "calls": _own_calls, "asserts": _own_asserts}
SCHEMAS = {
    "tests": _own,
    "input_output": _apps,
    "test": _human_eval,
    "test_list": _mbpp,
    "public_test_cases": _live_code_bench,
    "private_test_cases": _live_code_bench,
}
