"""The fixed token sequence on which engine and learner must agree after every publication."""

import numpy as np
from numpy.typing import NDArray

from services.control.problem_set import PreparedProblem

__all__ = ["probe_token_ids"]


def probe_token_ids(problems: "tuple[PreparedProblem, ...]", length: int) -> NDArray[np.int32]:
    """The first problems' tokens on end, up to `length`: int32 [tokens]. Real text, the same for the whole run."""
    joined: NDArray[np.int32] = np.concatenate([p.token_ids for p in problems[:length]])
    return joined[:length].astype(np.int32)
