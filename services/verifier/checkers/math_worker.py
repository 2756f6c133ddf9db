"""The process that runs math-verify: `python -m services.verifier.checkers.math_worker`.

math-verify's own time-outs rest on `signal.alarm` and turn into "wrong"; they are off here, as the parent kills this
process at its deadline.
"""

import logging
from collections.abc import Callable
from typing import Any

from services.verifier.checkers.answer import read_answer
from services.verifier.checkers.compare import same_answer
from services.verifier.checkers.policy import MathPolicy
from services.verifier.checkers.quick import needs_no_parser, same_scalar
from services.verifier.checkers.worker_loop import serve

__all__ = ["load"]

WARM_UP = (
    (r"\frac{\sqrt{3}}{2} x", r"x \sqrt{3/4}"),
    (r"x^2 - 1 = 0", r"2 x^2 = 2"),
    (r"(0, \pi) \cup (4, 5)", "(0,1)"),
)


def load() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Import math-verify, run the parser once, and return the function that answers one request."""
    from services.verifier.checkers.symbolic import UnreadableGold, symbolic_scalar

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own time-outs are off
    reference = _reference()

    def compare(gold: str, prediction: str, policy: MathPolicy, *, is_gold: bool = False) -> str:
        def leaf(a: str, b: str) -> bool:
            if is_gold:  # its own text is no evidence: it must parse
                return needs_no_parser(a, policy) or symbolic_scalar(a, b, policy)
            quick = same_scalar(a, b, policy)
            return symbolic_scalar(a, b, policy) if quick is None else quick

        try:
            same = same_answer(read_answer(gold), read_answer(prediction), leaf, policy)
        except UnreadableGold:
            return "error"
        except RecursionError:
            return "too_complex"
        return "ok" if same else "wrong"

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request.get("reference"):
            return {"status": reference(request["gold"], request["prediction"])}
        policy, is_gold = MathPolicy(**request["policy"]), request.get("is_gold", False)
        return {"status": compare(request["gold"], request["prediction"], policy, is_gold=is_gold)}

    for gold, prediction in WARM_UP:  # the parser builds its tables as it meets grammar; the first answer pays for all
        compare(gold, prediction, MathPolicy())
    return answer


def _reference() -> Callable[[str, str], str]:
    """The PACS paper's reward (Li et al. 2025, https://arxiv.org/abs/2509.02522), for comparison with its numbers.

    The gold answer is read with LaTeX extraction, the whole completion with expression and LaTeX extraction.
    """
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    gold_reading = [LatexExtractionConfig()]
    prediction_reading = [ExprExtractionConfig(), LatexExtractionConfig()]

    def reference(gold: str, completion: str) -> str:
        expected = parse(rf"\boxed{{{gold}}}", gold_reading, parsing_timeout=None, raise_on_error=True)
        if not expected:
            return "error"
        given = parse(completion, prediction_reading, parsing_timeout=None)
        return "ok" if given and verify(expected, given, timeout_seconds=None) else "wrong"

    return reference


if __name__ == "__main__":
    serve(load)
