"""Groups become arrays, and rows of them padded micro-batches. Pure numpy.

Shapes: P groups, G completions a group, B = P·G sequences, L tokens of a padded row, N response tokens of some rows,
one row after the other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pacs.wire.groups import Label, LabeledGroup
from services.learner.plans import padded_length

__all__ = ["Batch", "MicroBatch", "make_batch", "pad", "placeholder"]

CUT_OFF = "length"  # the engine's finish_reason where the token limit ended the completion


@dataclass(frozen=True)
class Batch:
    """All sequences of some whole groups, groups contiguous.

    Args:
        token_ids_B: prompt and response of each sequence, int32.
        prompt_tokens_B: length of each prompt.
        label_B: 1 correct, 0 wrong, 0 where not valid.
        valid_B: whether the verifier judged the sample.
        engine_logprobs_B: the engine's log-probs of each response, float32, nats.
        truncated_B: whether the response was cut at the length limit.

    """

    group_size: int
    token_ids_B: tuple[NDArray[np.int32], ...]
    prompt_tokens_B: NDArray[np.int64]
    label_B: NDArray[np.float32]
    valid_B: NDArray[np.bool_]
    engine_logprobs_B: tuple[NDArray[np.float32], ...]
    truncated_B: NDArray[np.bool_]

    def __len__(self) -> int:
        """Number of sequences, B."""
        return len(self.token_ids_B)

    @property
    def tokens_B(self) -> NDArray[np.int64]:
        """Length of each sequence."""
        return np.array([len(ids) for ids in self.token_ids_B], dtype=np.int64)

    @property
    def response_tokens_B(self) -> NDArray[np.int64]:
        """Length of each response."""
        return self.tokens_B - self.prompt_tokens_B

    def places(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where the response tokens of some rows stand among those of all rows; shape [N], in the order of `rows`."""
        lengths_B = self.response_tokens_B
        first_b, lengths_b = (lengths_B.cumsum() - lengths_B)[rows], lengths_B[rows]
        shift_b = first_b - (lengths_b.cumsum() - lengths_b)
        return np.arange(lengths_b.sum()) + np.repeat(shift_b, lengths_b)


@dataclass(frozen=True)
class MicroBatch:
    """Some rows, padded on the right, with the places of their response tokens.

    It has no mask: causal attention never looks to the right, where the padding is, and nothing of the padding is read.

    Args:
        rows: indices into the batch.
        row_N, column_N: where each response token is *predicted*: one place before it.
        target_N: the response tokens.

    """

    rows: NDArray[np.int64]
    input_ids_bL: NDArray[np.int64]
    row_N: NDArray[np.int64]
    column_N: NDArray[np.int64]
    target_N: NDArray[np.int64]


def make_batch(groups: Sequence[LabeledGroup]) -> Batch:
    """Lay groups of one size end to end.

    Raises:
        ValueError: no group, or groups of different sizes.

    """
    sizes = {len(g.group.completions) for g in groups}
    if len(sizes) != 1:
        raise ValueError(f"a batch needs groups of one size, got sizes {sorted(sizes)} in {len(groups)} groups")
    completions = [c for g in groups for c in g.group.completions]
    prompts = [g.group.prompt for g in groups for _ in g.group.completions]
    labels = [label for g in groups for label in g.labels]
    return Batch(
        group_size=sizes.pop(),
        token_ids_B=tuple(
            np.concatenate([p.token_ids, c.token_ids]) for p, c in zip(prompts, completions, strict=True)
        ),
        prompt_tokens_B=np.array([len(p.token_ids) for p in prompts], dtype=np.int64),
        label_B=np.array([label is Label.CORRECT for label in labels], dtype=np.float32),
        valid_B=np.array([label is not Label.INVALID for label in labels], dtype=np.bool_),
        engine_logprobs_B=tuple(c.logprobs for c in completions),
        truncated_B=np.array([c.finish_reason == CUT_OFF for c in completions], dtype=np.bool_),
    )


def placeholder(pad_token_id: int) -> MicroBatch:
    """The smallest micro-batch there is, of no row: for a rank that must take part in a pass it has nothing for."""
    return MicroBatch(
        rows=np.zeros(0, dtype=np.int64),
        input_ids_bL=np.full((1, 2), pad_token_id, dtype=np.int64),
        row_N=np.zeros(1, dtype=np.int64),
        column_N=np.zeros(1, dtype=np.int64),
        target_N=np.full(1, pad_token_id, dtype=np.int64),
    )


def pad(batch: Batch, rows: NDArray[np.int64], pad_token_id: int) -> MicroBatch:
    """Pad some rows of a batch to the padded length of their longest."""
    tokens, prompts = batch.tokens_B[rows], batch.prompt_tokens_B[rows]
    place_L = np.arange(padded_length(tokens).max())
    inside_bL = place_L < tokens[:, None]
    input_ids_bL = np.full(inside_bL.shape, pad_token_id, dtype=np.int64)
    input_ids_bL[inside_bL] = np.concatenate([batch.token_ids_B[row] for row in rows])
    response_bL = inside_bL & (place_L >= prompts[:, None])
    row_N, column_N = np.nonzero(response_bL)
    return MicroBatch(
        rows=rows,
        input_ids_bL=input_ids_bL,
        row_N=row_N,
        column_N=column_N - 1,
        target_N=input_ids_bL[row_N, column_N],
    )
