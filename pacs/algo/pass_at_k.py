"""Evaluation over several samples of one problem: pass@k, avg@k and maj@k."""

import math
from collections.abc import Sequence

__all__ = ["avg_at_k", "maj_at_k", "pass_at_k"]


def _check(samples: int, k: int) -> None:
    if k < 1 or samples < k:
        raise ValueError(f"k must be at least 1 and at most the number of samples, got k={k} and {samples} samples")


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Estimate without bias the chance that one of k samples is correct: 1 − C(n−c, k) / C(n, k).

    Source: "Evaluating Large Language Models Trained on Code", https://arxiv.org/abs/2107.03374, equation 1,
    as a product, which neither overflows nor cancels.

    Args:
        samples: n, samples drawn.
        correct: c, how many of them are correct.
        k: samples allowed.

    Returns:
        A probability.

    Raises:
        ValueError: k outside [1, n] or c outside [0, n].

    """
    _check(samples, k)
    if not 0 <= correct <= samples:
        raise ValueError(f"correct must be between 0 and the number of samples, got {correct} of {samples}")
    return 1.0 - math.prod(max(0, samples - correct - i) / (samples - i) for i in range(k))


def avg_at_k(correct: Sequence[bool], k: int) -> float:
    """Compute the share of correct samples among the first k.

    Raises:
        ValueError: k is outside [1, number of samples].

    """
    _check(len(correct), k)
    return sum(correct[:k]) / k


def maj_at_k(answers: Sequence[str | None], correct: Sequence[bool], k: int) -> float:
    """Compute whether the most frequent answer of the first k samples is correct.

    Source: "Self-Consistency Improves Chain of Thought Reasoning", https://arxiv.org/abs/2203.11171.

    Args:
        answers: the answer of each sample in one spelling per value; None where it gave none, which is no vote.
        correct: whether each sample is correct.
        k: samples that vote.

    Returns:
        1 or 0; between answers tied for the lead, the share of them that is correct; 0 where nobody votes.

    Raises:
        ValueError: lengths that differ, k outside [1, number of samples], or one answer both correct and wrong.

    """
    if len(answers) != len(correct):
        raise ValueError(f"every answer needs one verdict, got {len(answers)} answers and {len(correct)} verdicts")
    _check(len(answers), k)
    votes: dict[str, int] = {}
    verdicts: dict[str, bool] = {}
    for answer, verdict in zip(answers[:k], correct[:k], strict=True):
        if answer is None:
            continue
        votes[answer] = votes.get(answer, 0) + 1
        if verdicts.setdefault(answer, verdict) != verdict:
            raise ValueError(f"one answer must have one verdict, got {answer!r} as correct and as wrong; normalize it")
    leaders = [answer for answer, count in votes.items() if count == max(votes.values())]
    return sum(verdicts[answer] for answer in leaders) / len(leaders) if leaders else 0.0
