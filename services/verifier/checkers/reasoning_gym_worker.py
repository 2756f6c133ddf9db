"""The process that judges Reasoning Gym's answers: `python -m services.verifier.checkers.reasoning_gym_worker`."""

from collections.abc import Callable
from typing import Any

from services.verifier.checkers.reasoning_gym_rules import RULES, hedges, is_right
from services.verifier.checkers.reasoning_gym_scorers import score
from services.verifier.checkers.worker_loop import serve

__all__ = ["load"]


def load() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Import Reasoning Gym and return the function that judges one answer."""
    import reasoning_gym.factory  # noqa: F401  # now, not with the first answer

    def judge(request: dict[str, Any]) -> dict[str, Any]:
        family, entry, answer = request["family"], request["entry"], request["answer"]
        if family in RULES:
            return {"status": "ok" if is_right(family, answer, entry) else "wrong"}
        if hedges(family, answer, entry):
            return {"status": "wrong"}
        return score(family, entry, answer, request["options"])

    return judge


if __name__ == "__main__":
    serve(load)
