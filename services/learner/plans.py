"""Which rows pass through the model together, and on which rank: little padding, like loads. Pure numpy.

Shapes: B sequences of a batch, groups of G contiguous.
"""

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Plan", "divide", "one_pass_costs_less", "padded_length", "plan_micro_batches", "split_rows"]

Plan = list[NDArray[np.int64]]
"""A rank's micro-batches: rows of each."""

FORWARD, TRAINING, TRAINING_RECOMPUTED = 1, 3, 4
"""What a pass costs, in forward passes; the last with `learner.gradient_checkpointing`."""

PASS_SHARE = 32  # of a micro-batch's budget is what a forward and backward pass costs beside its tokens

ROW_MULTIPLE = 16
"""Rows are padded to a multiple of so many tokens.

Where a row's padded length is no multiple of 16, the blocks in which attention adds up depend on it (torch on a CPU),
and so would its log-probs; see docs/design/0014-rows-of-sixteen.md.
"""


def padded_length(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """The multiples of ROW_MULTIPLE that rows of so many tokens are padded to, at least."""
    return -(-tokens // ROW_MULTIPLE) * ROW_MULTIPLE


def plan_micro_batches(tokens_B: NDArray[np.int64], rows: NDArray[np.int64], max_tokens: int) -> Plan:
    """Split rows, sorted by length, where it costs least, each part with rows × padded length within `max_tokens`.

    The cost is that of all padded tokens and, for each part, of a 32nd of `max_tokens`: what passes cost beside their
    tokens. Exact, by dynamic programming over the sorted rows. A single row longer than the budget gets a part of its
    own.
    """
    ordered = rows[np.argsort(-tokens_B[rows], kind="stable")]
    longest, each = padded_length(tokens_B[ordered]), max_tokens / PASS_SHARE
    cost = np.concatenate([[0.0], np.full(len(ordered), np.inf)])  # of the best plan for the first so many rows
    last = np.zeros(len(ordered) + 1, dtype=np.int64)  # where its last part begins
    for start in range(len(ordered)):
        fits = max(1, max_tokens // int(longest[start]))
        ends = np.arange(start + 1, min(start + fits, len(ordered)) + 1)
        with_part = cost[start] + each + longest[start] * (ends - start)
        ends, with_part = ends[with_part < cost[ends]], with_part[with_part < cost[ends]]
        cost[ends], last[ends] = with_part, start
    plan, end = [], len(ordered)
    while end:
        plan.append(ordered[last[end] : end])
        end = int(last[end])
    return plan[::-1]


def split_rows(tokens_B: NDArray[np.int64], rows: NDArray[np.int64], ranks: int) -> list[NDArray[np.int64]]:
    """Share rows out over ranks: the longest first, each to the rank with the fewest tokens (Graham 1969, LPT).

    The heaviest rank gets at most 4/3 − 1/(3·ranks) of what the best split would give it.
    """
    shares: list[list[int]] = [[] for _ in range(ranks)]
    load = [(0, rank) for rank in range(ranks)]
    for row in rows[np.argsort(-tokens_B[rows], kind="stable")]:
        tokens, rank = heapq.heappop(load)
        shares[rank].append(int(row))
        heapq.heappush(load, (tokens + int(tokens_B[row]), rank))
    return [np.array(share, dtype=np.int64) for share in shares]


def divide(
    tokens_B: NDArray[np.int64], rows: NDArray[np.int64], *, ranks: int, max_tokens: int, group_size: int = 1
) -> list[Plan]:
    """Share rows out over ranks, and each share over micro-batches; of groups of some size, whole ones only."""
    longest = tokens_B.reshape(-1, group_size).max(1)
    shares = split_rows(longest, np.unique(rows // group_size) if group_size > 1 else rows, ranks)
    plans = [plan_micro_batches(longest, share, max_tokens // group_size) for share in shares]
    return [[(part[:, None] * group_size + np.arange(group_size)).ravel() for part in plan] for plan in plans]


def one_pass_costs_less(
    tokens_B: NDArray[np.int64],
    rows: NDArray[np.int64],
    teaching: NDArray[np.int64],
    *,
    group_size: int,
    ranks: int,
    max_tokens: int,
    recomputed: bool,
    passes_before: int,
) -> bool:
    """Whether whole groups in one pass cost less than log-probs first and then a pass over any rows together.

    Counted are padded tokens and passes, as `plan_micro_batches` does, on the rank that has most of them.

    Args:
        tokens_B: of the batch's sequences.
        rows: of an optimizer step, whole groups.
        teaching: those that may have a coefficient; two passes leave the others out of the second.
        group_size: G.
        ranks: that share the work.
        max_tokens: padded tokens of a micro-batch; a group that is longer does not fit.
        recomputed: whether the training pass computes activations again.
        passes_before: passes without gradient over the same rows that both ways need, packed alike.

    """
    groups = np.unique(rows // group_size)
    if group_size * padded_length(tokens_B.reshape(-1, group_size).max(1)[groups]).max() > max_tokens:
        return False
    training = TRAINING_RECOMPUTED if recomputed else TRAINING

    def cost(rows: NDArray[np.int64], group_size: int) -> float:
        plans = divide(tokens_B, rows, ranks=ranks, max_tokens=max_tokens, group_size=group_size)
        return max(_cost(tokens_B, plan, max_tokens) for plan in plans)

    one = (passes_before * FORWARD + training) * cost(rows, group_size)
    two = (passes_before + 1) * FORWARD * cost(rows, 1) + training * cost(teaching, 1)
    return one < two


def _cost(tokens_B: NDArray[np.int64], plan: Sequence[NDArray[np.int64]], max_tokens: int) -> float:
    return sum(len(part) * int(padded_length(tokens_B[part]).max()) + max_tokens / PASS_SHARE for part in plan)
