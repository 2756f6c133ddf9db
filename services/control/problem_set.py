"""The run's problems, tokenised and checked: what cannot be trained on is refused here, and counted."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pacs.data.problems import Problem
from pacs.errors import BadInput

__all__ = ["PreparedProblem", "ProblemSet", "prepare"]

Tokenize = Callable[[Sequence[Mapping[str, str]]], NDArray[np.int32]]
CheckGolds = Callable[[Sequence[Problem]], Awaitable[list[str]]]
"""Problems in; for each, empty if its gold verifies against itself, else the verifier's status."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedProblem:
    """A problem with its token ids, int32 [tokens]."""

    problem: Problem
    token_ids: NDArray[np.int32]


@dataclass(frozen=True)
class ProblemSet:
    """What a run trains on and is measured on.

    Args:
        refused: rows refused at load, by reason.

    """

    training: tuple[PreparedProblem, ...]
    heldout: tuple[PreparedProblem, ...]
    refused: Mapping[str, int]


async def prepare(
    training: Sequence[Problem],
    heldout: Sequence[Problem],
    tokenize: Tokenize,
    check_golds: CheckGolds,
    max_prompt_tokens: int,
) -> ProblemSet:
    """Tokenise, refuse over-long prompts and golds that do not verify against themselves.

    Raises:
        BadInput: nothing is left to train on.

    """
    refused: Counter[str] = Counter()
    kept = []
    for problems in (training, heldout):
        short = _tokenized(problems, tokenize, max_prompt_tokens, refused)
        kept.append(await _gradable(short, check_golds, refused))
    if not kept[0]:
        raise BadInput(
            f"there must be problems to train on, but all {len(training)} were refused: {dict(refused)}; "
            "raise data.max_prompt_tokens or mend the answers"
        )
    if refused:
        logger.warning("refused %d rows at load: %s", refused.total(), dict(refused))
    return ProblemSet(kept[0], kept[1], dict(refused))


def _tokenized(
    problems: Sequence[Problem], tokenize: Tokenize, limit: int, refused: Counter[str]
) -> list[PreparedProblem]:
    prepared = [PreparedProblem(problem, tokenize(problem.messages)) for problem in problems]
    short = [p for p in prepared if len(p.token_ids) <= limit]
    if len(short) < len(prepared):
        refused["prompt_too_long"] += len(prepared) - len(short)
    return short


async def _gradable(
    prepared: Sequence[PreparedProblem], check_golds: CheckGolds, refused: Counter[str]
) -> tuple[PreparedProblem, ...]:
    complaints = await check_golds([p.problem for p in prepared])
    bad = [(p, c) for p, c in zip(prepared, complaints, strict=True) if c]
    if bad:
        refused["gold_unverifiable"] += len(bad)
        for refused_problem, complaint in bad[:5]:
            logger.warning(
                "gold of %s does not verify against itself (%s): %r",
                refused_problem.problem.problem_id,
                complaint,
                refused_problem.problem.answer[:200],
            )
    return tuple(p for p, complaint in zip(prepared, complaints, strict=True) if not complaint)
