"""The process that runs Reasoning Gym's scorers: `python -m services.verifier.checkers.reasoning_gym_worker`."""

from collections.abc import Callable
from functools import cache
from typing import Any

from services.verifier.checkers.worker_loop import serve

__all__ = ["load"]

FULL_SCORE = 1.0


def load() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Import Reasoning Gym and return the function that scores one answer."""
    from reasoning_gym.factory import DATASETS, get_score_answer_fn

    scorer_of = cache(get_score_answer_fn)  # some families read word lists when they are built

    def score(request: dict[str, Any]) -> dict[str, Any]:
        family = request["family"]
        if family not in DATASETS:
            return {"status": "unknown_family", "known": sorted(DATASETS)}
        value = scorer_of(family)(request["answer"], request["entry"])
        return {"status": "ok" if value == FULL_SCORE else "wrong"}

    return score


if __name__ == "__main__":
    serve(load)
