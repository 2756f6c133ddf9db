"""Token log-probs by Liger's fused kernel, for GPUs: softmax and its gradient overwrite the logits they are made of.

Shapes: T tokens (all sequences laid end to end), D hidden size, V vocabulary.
Source: https://github.com/linkedin/Liger-Kernel, fused linear cross-entropy.
"""

import math

import torch  # noqa: TID253 - tensors are what this package computes on
from torch import Tensor  # noqa: TID253

from pacs.algo.token_logprobs import CHUNK_TOKENS, TokenLogprobs, check_inputs, token_logprobs

__all__ = ["applies_exactly", "fused_token_logprobs"]

ENTROPY_PIECES = 8  # in one piece, the sample's float32 logits would be the largest tensor of all
DTYPES = (torch.float32, torch.bfloat16)  # the kernel's own arithmetic is float32


def applies_exactly(temperature: float, dtype: torch.dtype) -> bool:
    """Whether hidden states can be divided by a temperature without a rounding the logits would not have.

    The kernel has no temperature. Any division rounds float32 as little as the product that follows; bfloat16 only
    keeps its eight bits if divided by a power of two.
    """
    return dtype == torch.float32 or math.frexp(temperature)[0] == 0.5


def fused_token_logprobs(
    hidden_TD: Tensor,
    weight_VD: Tensor,
    token_T: Tensor,
    *,
    temperature: float = 1.0,
    chunk_tokens: int = CHUNK_TOKENS,
    with_entropy: bool = False,
) -> TokenLogprobs:
    """Compute what `token_logprobs` does, with Liger's kernel; the entropy is estimated from some tokens.

    The kernel gives no entropy. Where asked for, that of at most chunk_tokens evenly spaced tokens is computed by
    `token_logprobs`, and every token gets their mean: a figure of health, without gradient, for one chunk's work.

    Chunks are powers of two of at most chunk_tokens, but the kernel makes none whose logits are fewer than T · D
    numbers: where T · D / V is more than chunk_tokens, up to twice as many logits as hidden_TD has numbers exist.

    Args:
        hidden_TD: final hidden states, float32 or bfloat16, at the positions that predict token_T.
        weight_VD: the output projection (lm_head), of the same dtype; whole, also during the backward pass.
        token_T: int64, the tokens that followed.
        temperature: divides the logits.
        chunk_tokens: tokens whose logits exist at one time.
        with_entropy: estimate the entropy of the predicted distributions too.

    Returns:
        logp_T and entropy_T, nats, in float32.

    Raises:
        ValueError: as `token_logprobs`; and tokens outside of the vocabulary, another dtype, or a temperature that
            does not apply exactly.

    """
    check_inputs(hidden_TD, weight_VD, token_T, temperature, chunk_tokens)
    if hidden_TD.dtype not in DTYPES or not applies_exactly(temperature, hidden_TD.dtype):
        raise ValueError(
            "the fused kernel takes float32, or bfloat16 at a temperature that is a power of two, got "
            f"{hidden_TD.dtype} at temperature={temperature:g}; use token_logprobs"
        )
    if not len(token_T):  # the kernel divides by their number
        return token_logprobs(hidden_TD, weight_VD, token_T, with_entropy=with_entropy)
    _check_tokens(token_T, len(weight_VD))
    entropy_T = _mean_entropy(hidden_TD, weight_VD, token_T, temperature, chunk_tokens) if with_entropy else None
    return TokenLogprobs(_logprobs(hidden_TD, weight_VD, token_T, temperature, chunk_tokens), entropy_T)


def _check_tokens(token_T: Tensor, vocabulary: int) -> None:
    """The kernel would read beside the logits, and takes -100 for a token to leave out."""
    low, high = (int(bound) for bound in token_T.aminmax())
    if low < 0 or high >= vocabulary:
        raise ValueError(f"token_T must lie in 0…{vocabulary - 1}, the rows of weight_VD, got {low} to {high}")


def _logprobs(hidden_TD: Tensor, weight_VD: Tensor, token_T: Tensor, temperature: float, chunk_tokens: int) -> Tensor:
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy

    tokens, width = hidden_TD.shape
    loss_T: Tensor = liger_fused_linear_cross_entropy(
        hidden_TD if temperature == 1 else hidden_TD / temperature,
        weight_VD,
        token_T,
        reduction="none",
        accum_dtype=torch.float32,  # of the weight's gradient: in bfloat16 the late chunks would be rounded away
        chunk_mem_const=_memory_constant(tokens, width, len(weight_VD), chunk_tokens),
    )
    return -loss_T


def _memory_constant(tokens: int, width: int, vocabulary: int, chunk_tokens: int) -> int:
    """The k with which Liger makes the fewest chunks of at most chunk_tokens.

    It cuts T tokens into ⌈V / (k·D)⌉ parts and rounds their size up to a power of two; k is at least 1.
    """
    largest = 1 << (chunk_tokens.bit_length() - 1)
    cuts = -(-tokens // largest) - 1
    return max(1, (vocabulary - 1) // (cuts * width)) if cuts else vocabulary


def _mean_entropy(
    hidden_TD: Tensor, weight_VD: Tensor, token_T: Tensor, temperature: float, chunk_tokens: int
) -> Tensor:
    every = slice(None, None, -(-len(token_T) // chunk_tokens))
    with torch.no_grad():
        sample = token_logprobs(
            hidden_TD[every],
            weight_VD,
            token_T[every],
            temperature=temperature,
            chunk_tokens=-(-chunk_tokens // ENTROPY_PIECES),
            with_entropy=True,
        )
    assert sample.entropy_T is not None
    return sample.entropy_T.mean().expand(len(token_T))
