"""The fixed token sequence on which engine and learner must agree after every publication."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.control.problem_set import PreparedProblem

__all__ = ["probe_token_ids"]

CANDIDATES = 64


def probe_token_ids(problems: Sequence[PreparedProblem], length: int) -> NDArray[np.int32]:
    """The longest of the first prompts, cut to `length`: int32 [tokens], the same for the whole run.

    One prompt as the model knows it, not several on end: on text it has never seen the like of, the rounding errors of
    two correct float32 programs are many times larger than on its own, and would hide what the probe looks for.
    """
    longest = max(problems[:CANDIDATES], key=lambda problem: len(problem.token_ids))
    return longest.token_ids[:length].astype(np.int32)
