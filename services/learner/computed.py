"""What passes over micro-batches give, by row, and how rank 0 comes to have that of all ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch  # noqa: TID253  # it takes the engine's tensors
from numpy.typing import NDArray

from services.learner.batches import Batch, MicroBatch
from services.learner.engine import SequenceLogprobs
from services.learner.world import World

__all__ = ["Computed", "collect"]


@dataclass
class Computed:
    """What this rank's passes gave: log-probs and values of each row's response, and the sum of the entropies."""

    has_values: bool
    tokens: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    values: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    entropy_sum: float = 0.0

    def of(self, rows: NDArray[np.int64]) -> SequenceLogprobs:
        """Log-probs of some rows that were added."""
        return SequenceLogprobs(tuple(self.tokens[row] for row in rows.tolist()), float("nan"))

    def add(
        self, micro_batch: MicroBatch, logp_N: torch.Tensor, entropy_N: torch.Tensor, value_N: torch.Tensor | None
    ) -> None:
        """Take a micro-batch's; its places are ordered by row."""
        if not len(micro_batch.rows):
            return
        ends = np.searchsorted(micro_batch.row_N, np.arange(1, len(micro_batch.rows)))
        for by_row, output_N in ((self.tokens, logp_N), (self.values, value_N)):
            if output_N is not None:
                parts = np.split(output_N.detach().float().cpu().numpy(), ends)
                by_row.update(zip(micro_batch.rows.tolist(), parts, strict=True))
        self.entropy_sum += float(entropy_N.sum())


def collect(
    world: World,
    batch: Batch,
    rows: NDArray[np.int64],
    shares: Sequence[NDArray[np.int64]],
    computed: Computed,
) -> SequenceLogprobs:
    """What all ranks computed of some rows, each its share of them; whole on rank 0, collective."""
    tokens = _exchanged(world, batch, shares, computed.tokens)
    values = _exchanged(world, batch, shares, computed.values) if computed.has_values else None
    entropy_sum = world.total(computed.entropy_sum)
    empty = np.zeros(0, dtype=np.float32)
    return SequenceLogprobs(
        tuple(tokens.get(int(row), empty) for row in rows),
        entropy_sum / max(1, int(batch.response_tokens_B[rows].sum())),
        () if values is None else tuple(values.get(int(row), empty) for row in rows),
    )


def _exchanged(
    world: World, batch: Batch, shares: Sequence[NDArray[np.int64]], own: dict[int, NDArray[np.float32]]
) -> dict[int, NDArray[np.float32]]:
    """One number a response token, by row: of all shares on rank 0, of the own one elsewhere."""
    if world.ranks == 1:
        return own
    mine = [own[int(row)] for row in shares[world.rank]]
    lengths = [int(batch.response_tokens_B[share].sum()) for share in shares]
    parts = world.collect(np.concatenate([np.zeros(0, dtype=np.float32), *mine]), lengths)
    if world.rank > 0:
        return own
    whole: dict[int, NDArray[np.float32]] = {}
    for share, part in zip(shares, parts, strict=True):
        ends = np.cumsum(batch.response_tokens_B[share])
        whole.update(zip(share.tolist(), np.split(part, ends)[:-1], strict=True))
    return whole
