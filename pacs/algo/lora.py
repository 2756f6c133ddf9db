"""Low-rank adapters made into weights. Shapes: `O` outputs, `I` inputs of a linear layer, `R` the adapter's rank."""

import torch  # noqa: TID253
from torch import Tensor  # noqa: TID253

__all__ = ["merge_lora"]


def merge_lora(weight_OI: Tensor, a_RI: Tensor, b_OR: Tensor, scale: float) -> Tensor:
    """Compute W + scale·B·A in float32 and round once, to W's dtype.

    Source: Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models", equation 3, https://arxiv.org/abs/2106.09685.

    Args:
        weight_OI: the frozen weights, left as they are.
        a_RI: the adapter's first factor, on the device to compute on.
        b_OR: its second.
        scale: alpha/rank.

    Returns:
        The merged weights, [O, I], on the adapter's device.

    Raises:
        ValueError: shapes that do not fit.

    """
    if (
        a_RI.dim() != 2
        or b_OR.dim() != 2
        or weight_OI.shape != (b_OR.shape[0], a_RI.shape[1])
        or (a_RI.shape[0] != b_OR.shape[1])
    ):
        shapes = f"{tuple(weight_OI.shape)}, {tuple(a_RI.shape)}, {tuple(b_OR.shape)}"
        raise ValueError(f"weight_OI, a_RI and b_OR must have shapes [O, I], [R, I] and [O, R], got {shapes}")
    base_OI = weight_OI.to(device=a_RI.device, dtype=torch.float32)
    return torch.addmm(base_OI, b_OR.float(), a_RI.float(), alpha=scale).to(weight_OI.dtype)
