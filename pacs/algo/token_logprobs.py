"""Log-probabilities of given tokens without ever holding the logits of a long batch.

Shapes: T tokens (all sequences laid end to end), C tokens of a chunk, D hidden size, V vocabulary.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch  # noqa: TID253 - tensors are what this package computes on
import torch.nn.functional as F  # noqa: TID253
from torch import Tensor  # noqa: TID253
from torch.autograd.function import once_differentiable  # noqa: TID253

__all__ = ["TokenLogprobs", "check_inputs", "token_logprobs"]

CHUNK_TOKENS = 1024
"""With a vocabulary of 150,000 a chunk's float32 logits take 0.6 GB."""


LEAST_ROWS = 16
"""Products of fewer rows go through kernels that round otherwise: docs/design/0014-rows-of-sixteen.md."""


class TokenLogprobs(NamedTuple):
    """Attributes: logp_T and entropy_T (None unless asked for), nats, in float32 or better."""

    logp_T: Tensor
    entropy_T: Tensor | None


def _logits(hidden_CD: Tensor, weight_VD: Tensor, temperature: float) -> Tensor:
    """Multiply as the model would, then go on in float32 or better: sums of log-softmax add rounding up."""
    logits_CV = _product(hidden_CD, weight_VD.T)
    return logits_CV.to(torch.promote_types(logits_CV.dtype, torch.float32)).div_(temperature)


def _product(rows_CK: Tensor, matrix_KN: Tensor) -> Tensor:
    """Multiply so that a row's result has the same bits with few other rows as with many."""
    rows = len(rows_CK)
    if rows < LEAST_ROWS:
        rows_CK = F.pad(rows_CK, (0, 0, 0, LEAST_ROWS - rows))
    return (rows_CK @ matrix_KN)[:rows]


def _chunks(tokens: int, chunk_tokens: int) -> Iterator[slice]:
    """Chunks of like size: a small last one would be multiplied by another kernel, which rounds otherwise."""
    if tokens:
        size = -(-tokens // -(-tokens // chunk_tokens))
        yield from (slice(start, start + size) for start in range(0, tokens, size))


class _ChunkedLogprobs(torch.autograd.Function):
    """Log-softmax of a linear map at one index a row; the backward pass computes the logits again.

    The largest logit is subtracted first, for a logit of 30 and its normalizer would each round to 2e-6; the logarithm
    is taken in float64, for a vectorised float32 one rounds by where in the chunk a token stands.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden_TD: Tensor,
        weight_VD: Tensor,
        token_T: Tensor,
        temperature: float,
        chunk_tokens: int,
        with_entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        precise = torch.promote_types(hidden_TD.dtype, torch.float32)
        logp_T = hidden_TD.new_empty(token_T.shape[0], dtype=precise)
        peak_T, normalizer_T = torch.empty_like(logp_T), torch.empty_like(logp_T)
        entropy_T = torch.empty_like(logp_T) if with_entropy else logp_T.new_empty(0)
        for rows in _chunks(token_T.shape[0], chunk_tokens):
            logits_CV = _logits(hidden_TD[rows], weight_VD, temperature)
            peak_T[rows] = logits_CV.amax(-1)
            logits_CV.sub_(peak_T[rows, None])
            normalizer_T[rows] = logits_CV.exp().sum(-1).double().log()
            logp_T[rows] = logits_CV.gather(-1, token_T[rows, None]).squeeze(-1) - normalizer_T[rows]
            if with_entropy:
                p_CV = (logits_CV - normalizer_T[rows, None]).exp_()
                entropy_T[rows] = normalizer_T[rows] - p_CV.mul_(logits_CV).sum(-1)
        ctx.save_for_backward(hidden_TD, weight_VD, token_T, peak_T, normalizer_T)
        ctx.temperature, ctx.chunk_tokens = temperature, chunk_tokens
        ctx.mark_non_differentiable(entropy_T)
        return logp_T, entropy_T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_T: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        hidden_TD, weight_VD, token_T, peak_T, normalizer_T = ctx.saved_tensors
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        grad_hidden_TD = torch.empty_like(hidden_TD) if wants_hidden else None
        # Chunks add up in float32 or better: in bfloat16 the late ones would be rounded away.
        grad_weight_VD = torch.zeros_like(weight_VD, dtype=grad_T.dtype) if wants_weight else None
        for rows in _chunks(token_T.shape[0], ctx.chunk_tokens):
            logits_CV = _logits(hidden_TD[rows], weight_VD, ctx.temperature)
            grad_CV = logits_CV.sub_(peak_T[rows, None]).sub_(normalizer_T[rows, None]).exp_().neg_()
            grad_CV.scatter_add_(-1, token_T[rows, None], torch.ones_like(normalizer_T[rows, None]))
            grad_CV = grad_CV.mul_(grad_T[rows, None] / ctx.temperature).to(hidden_TD.dtype)
            if grad_hidden_TD is not None:
                grad_hidden_TD[rows] = _product(grad_CV, weight_VD)
            if grad_weight_VD is not None:
                grad_weight_VD += grad_CV.T @ hidden_TD[rows]
        if grad_weight_VD is not None:
            grad_weight_VD = grad_weight_VD.to(weight_VD.dtype)
        return grad_hidden_TD, grad_weight_VD, None, None, None, None


def check_inputs(hidden_TD: Tensor, weight_VD: Tensor, token_T: Tensor, temperature: float, chunk_tokens: int) -> None:
    """Refuse what no implementation of token log-probs takes; raises ValueError as `token_logprobs` says."""
    if hidden_TD.dim() != 2 or weight_VD.dim() != 2 or token_T.shape != hidden_TD.shape[:1]:
        shapes = f"{tuple(hidden_TD.shape)}, {tuple(weight_VD.shape)}, {tuple(token_T.shape)}"
        raise ValueError(f"hidden_TD, weight_VD and token_T must have shapes [T, D], [V, D] and [T], got {shapes}")
    if temperature <= 0 or chunk_tokens < 1:
        raise ValueError(
            f"temperature and chunk_tokens must be positive, got temperature={temperature:g}, "
            f"chunk_tokens={chunk_tokens}; score greedy samples at temperature 1"
        )


def token_logprobs(
    hidden_TD: Tensor,
    weight_VD: Tensor,
    token_T: Tensor,
    *,
    temperature: float = 1.0,
    chunk_tokens: int = CHUNK_TOKENS,
    with_entropy: bool = False,
) -> TokenLogprobs:
    """Compute log softmax(hidden · weightᵀ / temperature) at the given tokens, chunk by chunk.

    Differentiable once with respect to hidden_TD and weight_VD; the backward pass computes each chunk's logits again.
    No tensor larger than max(16, chunk_tokens) × V or V × D is made besides the gradient of hidden_TD.

    Args:
        hidden_TD: final hidden states, at the positions that predict token_T.
        weight_VD: the output projection (lm_head), of the same dtype; whole, also during the backward pass.
        token_T: int64, the tokens that followed.
        temperature: divides the logits.
        chunk_tokens: tokens whose logits exist at one time; fewer than 16 take the room of 16.
        with_entropy: compute the entropy of each predicted distribution too; it has no gradient.

    Returns:
        logp_T and entropy_T, nats, in float32 or better.

    Raises:
        ValueError: shapes that do not fit, or a temperature or chunk_tokens that is not positive.

    """
    check_inputs(hidden_TD, weight_VD, token_T, temperature, chunk_tokens)
    apply = _ChunkedLogprobs.apply
    logp_T, entropy_T = apply(  # type: ignore[no-untyped-call]  # torch leaves it without annotations
        hidden_TD, weight_VD, token_T, temperature, chunk_tokens, with_entropy
    )
    return TokenLogprobs(logp_T, entropy_T if with_entropy else None)
