"""The process that runs math-verify: `python -m services.verifier.checkers.math_worker`.

math-verify's own time-outs rest on `signal.alarm` and turn into "wrong"; they are off here, as the parent kills this
process at its deadline.
"""

from collections.abc import Callable
from typing import Any

from services.verifier.checkers.worker_loop import serve

__all__ = ["load"]


def load() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Import math-verify and return the function that compares two boxed answers.

    The gold answer is read with LaTeX extraction and the prediction with expression and LaTeX extraction, as in the
    PACS paper's reward (Li et al. 2025, https://arxiv.org/abs/2509.02522).
    """
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    gold_reading = [LatexExtractionConfig()]
    prediction_reading = [ExprExtractionConfig(), LatexExtractionConfig()]

    def read(answer: str, reading: list[Any]) -> list[Any]:
        return list(parse(rf"\boxed{{{answer}}}", reading, parsing_timeout=None, raise_on_error=True))

    def compare(request: dict[str, Any]) -> dict[str, Any]:
        gold = read(request["gold"], gold_reading)
        if not gold:
            return {"status": "error", "detail": "gold does not parse"}
        prediction = read(request["prediction"], prediction_reading)
        equal = bool(prediction) and verify(gold, prediction, timeout_seconds=None, raise_on_error=True)
        return {"status": "ok" if equal else "wrong"}

    return compare


if __name__ == "__main__":
    serve(load)
