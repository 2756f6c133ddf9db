"""Which completions an objective looks at, and under which label.

Shapes: B = P·G sequences (groups contiguous), G completions of a group.
"""

from typing import Literal, NamedTuple, get_args

from torch import Tensor  # noqa: TID253 - tensors are what this package computes on

from pacs.algo.health import uniform_groups

__all__ = ["Selection", "Truncated", "UniformGroups", "select"]

Truncated = Literal["as_labelled", "wrong", "dropped"]
UniformGroups = Literal["keep", "drop"]


class Selection(NamedTuple):
    """Attributes: label_B (1 or 0), judged_B (the label enters advantages), trained_B (in the loss and its counts)."""

    label_B: Tensor
    judged_B: Tensor
    trained_B: Tensor


def select(
    label_B: Tensor,
    valid_B: Tensor,
    truncated_B: Tensor,
    *,
    group_size: int,
    truncated: Truncated,
    uniform: UniformGroups,
    dropped_labels_count: bool,
) -> Selection:
    """Decide what truncated completions and groups with one label are to the objective. Invalid stays invalid.

    Args:
        label_B: 1 for correct, 0 for wrong; ignored where not valid.
        valid_B: bool, false where the verifier could not judge.
        truncated_B: bool, whether the response was cut at the length limit.
        group_size: G.
        truncated: `as_labelled`; `wrong`, whatever the verifier found in it; `dropped`, out of the loss.
        uniform: `keep`, or `drop` all of a group whose judged labels are all alike.
        dropped_labels_count: whether labels of dropped completions still enter advantages and make a group mixed. True
            for policy gradients, whose baseline is made of labels. False for PACS, whose baseline is made of
            log-probabilities, through which it would move the dropped completion after all.

    Returns:
        The labels and the two masks; trained_B is a subset of judged_B.

    Raises:
        ValueError: shapes that differ, broken groups, or an unknown name.

    """
    if not label_B.shape == valid_B.shape == truncated_B.shape or label_B.shape[0] % group_size:
        shapes = f"{tuple(label_B.shape)}, {tuple(valid_B.shape)}, {tuple(truncated_B.shape)}"
        raise ValueError(
            f"labels and masks must have one shape and hold whole groups, got {shapes}, group_size={group_size}"
        )
    if truncated not in get_args(Truncated) or uniform not in get_args(UniformGroups):
        raise ValueError(
            f"truncated must be one of {', '.join(get_args(Truncated))} and uniform one of "
            f"{', '.join(get_args(UniformGroups))}, got {truncated!r} and {uniform!r}"
        )
    valid_B, truncated_B = valid_B.bool(), truncated_B.bool()
    if truncated == "wrong":
        label_B = label_B.masked_fill(truncated_B, 0)
    trained_B = valid_B & ~truncated_B if truncated == "dropped" else valid_B
    judged_B = valid_B if dropped_labels_count else trained_B
    if uniform == "drop":
        uniform_P = uniform_groups(label_B.view(-1, group_size), judged_B.view(-1, group_size))
        trained_B = trained_B & ~uniform_P.repeat_interleave(group_size)
    return Selection(label_B, judged_B, trained_B)
