"""Compares two answers by their structure; what their parts are worth is the leaf's to say.

The same walk runs twice: in the service with a leaf that knows text and fractions, and, where that leaves the question
open, in a worker with a leaf that asks a computer-algebra system. Three values travel: True, False and None (open).
"""

import re
from collections.abc import Callable, Iterable, Sequence

from services.verifier.checkers.answer import Answer
from services.verifier.checkers.policy import MathPolicy
from services.verifier.checkers.rational import parse_rational
from services.verifier.checkers.refute import evaluates

__all__ = ["Leaf", "same_answer"]

Leaf = Callable[[str, str], bool | None]

EQUATION = re.compile(r"(?<![<>!\\])=")
MAX_ITEMS = 64  # more are compared in their order only: matching costs the square


def same_answer(gold: Answer, prediction: Answer, leaf: Leaf, policy: MathPolicy) -> bool | None:
    """Say whether the prediction is the gold; None where the leaf could not tell."""
    return _Walk(leaf, policy).same(gold, prediction)


class _Walk:
    def __init__(self, leaf: Leaf, policy: MathPolicy) -> None:
        self._leaf = leaf
        self._policy = policy

    def same(self, gold: Answer, given: Answer) -> bool | None:
        gold, given = _single(gold), _single(given)
        if gold.name and given.name and gold.name != given.name:
            return self._leaf(_statement(gold), _statement(given)) if _are_scalars(gold, given) else False
        if gold.kind == "scalar" or given.kind == "scalar":
            return self._with_scalar(gold, given)
        if gold.kind == given.kind == "union":
            return self._matched(gold.items, given.items) or self._leaf(gold.text, given.text)
        if "union" in (gold.kind, given.kind):
            return self._leaf(gold.text, given.text)
        if gold.kind == "tuple":
            return self._with_tuple(gold, given)
        if gold.kind == "matrix":
            return self._with_matrix(gold, given)
        return self._with_collection(gold, given)

    def _with_scalar(self, gold: Answer, given: Answer) -> bool | None:
        """A value is no list; what has none may turn out to be one: plus-minus, a union, a set difference."""
        value = gold if gold.kind == "scalar" else given
        other = given if gold.kind == "scalar" else gold
        if other.kind == "list" and value is gold and _are_its_thousands(gold.text, given):
            return True
        if other.kind != "scalar" and (parse_rational(value.text) is not None or evaluates(value.text)):
            return False
        if gold.relation != given.relation and not self._policy.inequality_for_interval:
            return False
        if given.kind == "scalar" and EQUATION.search(given.text) and not EQUATION.search(_statement(gold)):
            return self._leaf(gold.text, EQUATION.split(given.text)[-1].strip())  # 3 * 4 = 12 says 12
        if EQUATION.search(gold.text) or EQUATION.search(given.text):
            return self._leaf(_statement(gold), _statement(given))
        return self._leaf(gold.text, given.text)

    def _with_tuple(self, gold: Answer, given: Answer) -> bool | None:
        if given.kind == "tuple":
            if given.relation and not gold.relation and not self._policy.inequality_for_interval:
                return False
            return gold.brackets == given.brackets and self._in_order(gold.items, given.items)
        if given.kind == "matrix":
            return self._policy.vector_for_tuple and _is_vector(given) and self._in_order(gold.items, given.items)
        allowed = given.kind == "list" and self._policy.list_for_tuple
        return allowed and self._in_order(gold.items, given.items)

    def _with_matrix(self, gold: Answer, given: Answer) -> bool | None:
        if given.kind == "matrix":
            return gold.columns == given.columns and self._in_order(gold.items, given.items)
        allowed = given.kind == "tuple" and self._policy.vector_for_tuple and _is_vector(gold)
        return allowed and self._in_order(gold.items, given.items)

    def _with_collection(self, gold: Answer, given: Answer) -> bool | None:
        """The gold is a list or a set: order does not count, and in a set neither does repetition."""
        if given.kind == "tuple":
            return gold.kind == "list" and self._in_order(gold.items, given.items)
        if given.kind == "matrix":
            return False
        expected = self._distinct(gold.items) if gold.kind == "set" else gold.items
        found = self._distinct(given.items) if "set" in (gold.kind, given.kind) else given.items
        return self._matched(expected, found)

    def _distinct(self, items: Sequence[Answer]) -> Sequence[Answer]:
        if len(items) > MAX_ITEMS:
            return items
        kept: list[Answer] = []
        for item in items:
            if not any(self.same(other, item) for other in kept):
                kept.append(item)
        return kept

    def _in_order(self, gold: Sequence[Answer], given: Sequence[Answer]) -> bool | None:
        if len(gold) != len(given):
            return False
        return _all(self.same(a, b) for a, b in zip(gold, given, strict=True))

    def _matched(self, gold: Sequence[Answer], given: Sequence[Answer]) -> bool | None:
        """Whether every item finds a partner of its own; equality is transitive, so the first that fits will do."""
        if len(gold) != len(given):
            return False
        if len(gold) > MAX_ITEMS:
            return self._in_order(gold, given)
        free = list(given)
        open_question = False
        for item in gold:
            answers = [self.same(item, other) for other in free]
            if True in answers:
                del free[answers.index(True)]
            elif None in answers:
                open_question = True
            else:
                return False
        return None if open_question else True


def _single(answer: Answer) -> Answer:
    """A list or set of one is that one."""
    while answer.kind in ("list", "set") and len(answer.items) == 1:
        answer = answer.items[0]
    return answer


def _are_scalars(*answers: Answer) -> bool:
    return all(answer.kind == "scalar" for answer in answers)


def _statement(answer: Answer) -> str:
    return f"{answer.name} = {answer.text}" if answer.name else answer.text


def _is_vector(matrix: Answer) -> bool:
    return matrix.columns in (1, len(matrix.items))


def _are_its_thousands(gold: str, given: Answer) -> bool:
    """`120,150` is a number, but where it was meant as a list, the same three-digit numbers say it with spaces."""
    return gold.split(",") == [item.text for item in given.items]


def _all(answers: Iterable[bool | None]) -> bool | None:
    found = list(answers)
    if False in found:
        return False
    return None if None in found else True
