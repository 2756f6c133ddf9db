"""Scores an answer with Reasoning Gym's own scorer, after taking `eval` away from it.

Several scorers hand the answer, or the row, to `eval` or to sympy's `parse_expr`, which is `eval` underneath. They get
readers that evaluate nothing instead. This file is run as a program in the sandbox too, so it imports nothing of ours.
"""

import ast
import json
import sys
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

__all__ = ["GOLD_IN_METADATA", "WITHOUT_GOLD", "integer", "score"]

FULL_SCORE = 1.0
MAX_EXPONENT = 1000
MAX_SHIFT = 4096

READS_LITERALS = ("binary_matrix", "n_queens", "number_sorting", "spiral_matrix", "string_insertion")
READS_EXPRESSIONS = ("countdown", "puzzle24")  # the others ask sympy by its module
COMPARES_TUPLES = ("arc_agi", "rearc")

GOLD_IN_METADATA = {
    "graph_color": "possible_answer",
    "propositional_logic": "example_answer",
    "rubiks_cube": "example_correct_answer",
}
"""Families whose entries have no answer, as there are many, but show one."""

WITHOUT_GOLD = frozenset({"boxnet", "rush_hour"})
"""Families whose entries show no answer at all: the scorer plays the moves it is given."""

FUNCTIONS = (
    "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot", "sinh", "cosh", "tanh", "asinh", "acosh",
    "atanh", "exp", "log", "ln", "sqrt", "Abs",
)  # fmt: skip
"""What an answer may call. Not `Integral` and `integrate`: they would pay the question for its answer."""

Scorer = Callable[[str, Mapping[str, Any]], float]


def score(family: str, entry: dict[str, Any], answer: str, options: dict[str, Any]) -> dict[str, Any]:
    """Say whether the family's scorer pays the answer in full.

    A scorer that raises is at fault only if it raises for the entry's own answer too; else the answer is malformed.

    Args:
        family: name of the data set.
        entry: as it was generated, after a journey through JSON.
        answer: what the model wrote.
        options: the family's, where they are not the default ones.

    """
    from reasoning_gym.factory import DATASETS

    if family not in DATASETS:
        return {"status": "unknown_family", "known": sorted(DATASETS)}
    _disarm()
    scorer, entry = _scorer(family, json.dumps(options, sort_keys=True)), _restored(family, entry)
    try:
        value = scorer(answer, entry)
    except MemoryError:
        raise
    except Exception:
        scorer(_gold(family, entry), entry)
        value = 0.0
    return {"status": "ok" if value == FULL_SCORE else "wrong"}


@cache
def _scorer(family: str, options: str) -> Scorer:
    """Some families read word lists when they are built, so each is built once."""
    from reasoning_gym.factory import DATASETS

    make, config = DATASETS[family]
    scorer: Scorer = make(config=config(**json.loads(options))).score_answer
    return scorer


def _restored(family: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Put back the tuples that JSON turned into lists, where the scorer would miss them."""
    if family not in COMPARES_TUPLES:
        return entry
    metadata = entry["metadata"]
    return {**entry, "metadata": {**metadata, "output": tuple(map(tuple, metadata["output"]))}}


def _gold(family: str, entry: Mapping[str, Any]) -> str:
    gold = entry["metadata"].get(GOLD_IN_METADATA[family]) if family in GOLD_IN_METADATA else entry["answer"]
    return gold if isinstance(gold, str) else "" if gold is None else json.dumps(gold)


@cache
def _disarm() -> None:
    """Put readers in the place of what evaluates text, before any scorer is called."""
    import sympy
    from reasoning_gym.factory import DATASETS

    def module(family: str) -> Any:
        return sys.modules[DATASETS[family][0].__module__]

    for family in READS_LITERALS:
        module(family).eval = ast.literal_eval
    for family in READS_EXPRESSIONS:
        module(family).parse_expr = _expression
    module("bitwise_arithmetic").eval = integer
    sympy.parse_expr = _expression


def integer(text: str) -> int:
    """Compute integer arithmetic without evaluating anything.

    Raises:
        ValueError: it is something else, or a shift is too long.

    """
    return _integer(ast.parse(text.strip(), mode="eval").body)


def _integer(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and type(node.op) in INTEGER_SIGNS:
        return INTEGER_SIGNS[type(node.op)](_integer(node.operand))
    if isinstance(node, ast.BinOp):
        return _two(node.op, _integer(node.left), _integer(node.right))
    raise ValueError("not integer arithmetic")


def _two(operator: ast.operator, left: int, right: int) -> int:
    if isinstance(operator, (ast.LShift, ast.RShift)) and not 0 <= right <= MAX_SHIFT:
        raise ValueError(f"a shift may be {MAX_SHIFT} long")
    if type(operator) not in INTEGER_OPERATORS:
        raise ValueError("not integer arithmetic")
    return INTEGER_OPERATORS[type(operator)](left, right)


INTEGER_SIGNS: dict[type[ast.unaryop], Callable[[int], int]] = {
    ast.UAdd: lambda a: a,
    ast.USub: lambda a: -a,
    ast.Invert: lambda a: ~a,
}
INTEGER_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.LShift: lambda a, b: a << b,
    ast.RShift: lambda a, b: a >> b,
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.BitXor: lambda a, b: a ^ b,
}


def _expression(text: str, local_dict: Mapping[str, Any] | None = None) -> Any:
    """Read what sympy's `parse_expr` reads of arithmetic, symbols and elementary functions; raises ValueError else."""
    return _term(ast.parse(text.strip(), mode="eval").body, local_dict or {})


def _term(node: ast.expr, names: Mapping[str, Any]) -> Any:
    import sympy

    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return sympy.Integer(node.value) if type(node.value) is int else sympy.Float(repr(node.value))
    if isinstance(node, ast.Name):
        return names[node.id] if node.id in names else _constants().get(node.id, sympy.Symbol(node.id))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
        value = _term(node.operand, names)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        return _combined(node.op, _term(node.left, names), _term(node.right, names))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS:
        if node.keywords or len(node.args) != 1:
            raise ValueError("functions take one argument")
        return getattr(sympy, node.func.id)(_term(node.args[0], names))
    raise ValueError("not an expression of arithmetic, symbols and elementary functions")


def _combined(operator: ast.operator, left: Any, right: Any) -> Any:
    if isinstance(operator, ast.Pow):
        if right.is_number and abs(right) > MAX_EXPONENT:
            raise ValueError(f"exponents may be {MAX_EXPONENT}")
        return left**right
    if type(operator) not in OPERATORS:
        raise ValueError("not an operator of arithmetic")
    return OPERATORS[type(operator)](left, right)


def _constants() -> dict[str, Any]:
    import sympy

    return {"E": sympy.E, "I": sympy.I, "pi": sympy.pi}


OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
}
