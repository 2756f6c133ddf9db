"""Weights that make the two labels of a prompt group count alike.

Shapes: P prompt groups, G completions of a group.
"""

from typing import Literal, get_args

import torch  # noqa: TID253 - tensors are what this package computes on
from torch import Tensor  # noqa: TID253

__all__ = ["ClassWeight", "class_weights"]

ClassWeight = Literal["balanced", "none", "positive_only", "negative_only"]


def _balanced(positive_PG: Tensor, negative_PG: Tensor) -> Tensor:
    positives_P1 = positive_PG.sum(-1, keepdim=True)
    negatives_P1 = negative_PG.sum(-1, keepdim=True)
    # Single precision, as in the published code: 2/3 is 0.6666666865 there and here.
    valid_P1 = (positives_P1 + negatives_P1).float()
    own_PG = torch.where(positive_PG, positives_P1, negatives_P1).clamp(min=1)
    mixed_P1 = (positives_P1 > 0) & (negatives_P1 > 0)
    return torch.where(mixed_P1, valid_P1 / (2 * own_PG), torch.ones_like(valid_P1))


def class_weights(label_PG: Tensor, valid_PG: Tensor, *, class_weight: ClassWeight) -> Tensor:
    """Weigh samples by label inside each group.

    `balanced` is n / (2 · n_label) over the n valid samples of the group, 1 where they have one label only
    (scikit-learn's "balanced"); `none` is 1; `positive_only` and `negative_only` are 1 for that label, 0 for the other.
    Source: PACS, https://arxiv.org/abs/2509.02522, and its published code.

    Args:
        label_PG: 1 for correct, 0 for wrong; ignored where not valid.
        valid_PG: bool.
        class_weight: which of the four.

    Returns:
        weight_PG: float32; 0 where not valid.

    Raises:
        ValueError: an unknown class_weight, or shapes that differ.

    """
    if label_PG.shape != valid_PG.shape:
        shapes = f"{tuple(label_PG.shape)}, {tuple(valid_PG.shape)}"
        raise ValueError(f"label_PG and valid_PG must have one shape, got {shapes}")
    valid_PG = valid_PG.bool()
    positive_PG = (label_PG == 1) & valid_PG
    negative_PG = ~positive_PG & valid_PG
    match class_weight:
        case "balanced":
            return _balanced(positive_PG, negative_PG).masked_fill(~valid_PG, 0.0)
        case "none":
            return valid_PG.float()
        case "positive_only":
            return positive_PG.float()
        case "negative_only":
            return negative_PG.float()
        case _:
            raise ValueError(f"class_weight must be one of {', '.join(get_args(ClassWeight))}, got {class_weight!r}")
