"""What a code row asks for: tests of one of three kinds, and how a completion becomes a program."""

import ast
import builtins
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pacs.errors import BadInput

__all__ = ["AssertTests", "Call", "CallTests", "CodeTask", "InputOutput", "StdioTests", "Tests", "make_assert_tests"]


@dataclass(frozen=True)
class InputOutput:
    """Text for stdin, and the text that must come out."""

    given: str
    expected: str


@dataclass(frozen=True)
class StdioTests:
    """The program reads stdin and writes stdout; blanks at line ends and at the end do not count."""

    cases: tuple[InputOutput, ...]

    def __post_init__(self) -> None:
        if not any(case.expected.strip() for case in self.cases):
            raise BadInput(
                f"stdio tests must expect output of at least one input, got {len(self.cases)} tests that expect none: "
                "an empty program would pass; mend or remove the row"
            )


@dataclass(frozen=True)
class Call:
    """Arguments, and the values any of which is right."""

    arguments: tuple[Any, ...]
    accepted: tuple[Any, ...]


@dataclass(frozen=True)
class CallTests:
    """A function, or a method of a class `Solution`, is called."""

    function: str
    cases: tuple[Call, ...]

    def __post_init__(self) -> None:
        if not self.function or not self.cases:
            raise BadInput(
                f"calls tests need a function and at least one call, got fn={self.function!r} and "
                f"{len(self.cases)} calls; mend or remove the row"
            )


@dataclass(frozen=True)
class AssertTests:
    """Python statements that raise AssertionError if the program is wrong.

    Args:
        code: the statements.
        names: what they use of the program.

    """

    code: str
    names: tuple[str, ...]


Tests = StdioTests | CallTests | AssertTests


@dataclass(frozen=True)
class CodeTask:
    """A row, whichever schema it came in.

    Args:
        tests: what the program must pass.
        solution: a program that passes, where the row has one.
        preamble: put before a program that defines `entry`: imports and helpers the problem's text gives.
        stem: put before any other: the beginning of a function that the completion goes on with.
        entry: the function asked for, where there is a preamble or a stem.
        whole: the completion is the program, without fences.

    """

    tests: Tests
    solution: str | None = None
    preamble: str = ""
    stem: str = ""
    entry: str = ""
    whole: bool = False

    def assembled(self, code: str) -> str:
        """Return the program that is run for what a completion said."""
        if self.stem and not _defines(code, self.entry):
            return self.stem + code
        return f"{self.preamble}\n{code}" if self.preamble else code


def make_assert_tests(code: str, names: tuple[str, ...] | None = None, solution: str | None = None) -> AssertTests:
    """Make assert tests.

    Args:
        code: Python statements.
        names: what they use of the program; by default what they neither define nor import.
        solution: a right program: built-in names that it redefines are then its own.

    Raises:
        BadInput: the code does not parse, asserts nothing, or uses nothing of the program.

    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise BadInput(f"assert tests must be Python, got code that does not parse: {error}; mend the row") from None
    if not any(_asserts(node) for node in ast.walk(tree)):
        raise BadInput("assert tests must assert something, got code without an assert; mend or remove the row")
    used = tuple(dict.fromkeys(_free_names(tree, _redefined(solution or "")))) if names is None else names
    if not used:
        raise BadInput("assert tests must use a name of the program, got code that uses none; mend or remove the row")
    return AssertTests(code, used)


def _asserts(node: ast.AST) -> bool:
    return isinstance(node, ast.Assert) or (isinstance(node, ast.Attribute) and node.attr.startswith("assert"))


def _redefined(solution: str) -> set[str]:
    return {line[4:].split("(")[0].strip() for line in solution.splitlines() if line.startswith("def ")}


def _free_names(tree: ast.Module, redefined: set[str]) -> Iterator[str]:
    bound = set(dir(builtins)) - redefined
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            bound.add(node.name)
    yield from (n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id not in bound)


def _defines(code: str, name: str) -> bool:
    """By text, not by parsing: this is a completion, and its syntax errors are to show in the run."""
    return re.search(rf"^(async )?def[ \t]+{re.escape(name)}[ \t]*\(", code, re.MULTILINE) is not None
