"""The fused kernel against torch on a small case, before a run relies on it: kernels are compiled where they run."""

from typing import TYPE_CHECKING

from pacs.algo import token_logprobs
from pacs.algo.fused_logprobs import fused_token_logprobs

if TYPE_CHECKING:
    from torch import Tensor

    from services.learner.logprob_kernel import Compute

__all__ = ["try_out"]

TOKENS, WIDTH, VOCABULARY, CHUNK_TOKENS = 5, 16, 40_000, 2  # two of the kernel's blocks a row, three chunks
TOLERANCES = {"float32": 1e-4, "bfloat16": 0.02}  # ‖error‖ / ‖expected‖: some tens and three times what is measured
MESSAGE_LENGTH = 300


def try_out(dtype: str, device: str = "cuda") -> str | None:
    """Compare log-probs and both gradients in a dtype; returns what is wrong with the kernel, or None."""
    expected = _outputs(token_logprobs, dtype, device)
    try:
        got = _outputs(fused_token_logprobs, dtype, device)
    except Exception as error:  # what compilers of kernels, of C, and drivers raise has no class in common
        return f"liger-kernel failed on a small case: {type(error).__name__}: {str(error)[:MESSAGE_LENGTH]}"
    for name, right in expected.items():
        off = float((got[name].double() - right.double()).norm() / right.double().norm())
        if not off <= TOLERANCES[dtype]:
            return (
                f"it was off by {off:.2g} in {name} on a small case, relative to torch (at most {TOLERANCES[dtype]:g})"
            )
    return None


def _outputs(compute: "Compute", dtype: str, device: str) -> "dict[str, Tensor]":
    """On numbers of a generator of our own: the run's is left as it is."""
    import torch

    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device, getattr(torch, dtype)).requires_grad_()

    hidden_TD, weight_VD = normal(TOKENS, WIDTH), normal(VOCABULARY, WIDTH)
    token_T = torch.linspace(0, VOCABULARY - 1, TOKENS, device=device).long()
    coefficient_T = torch.linspace(-1.0, 2.0, TOKENS, device=device)
    logp_T, _ = compute(hidden_TD, weight_VD, token_T, temperature=1.0, chunk_tokens=CHUNK_TOKENS, with_entropy=False)
    grad_hidden_TD, grad_weight_VD = torch.autograd.grad((coefficient_T * logp_T).sum(), (hidden_TD, weight_VD))
    return {
        "log-probs": logp_T.detach(),
        "gradient of hidden states": grad_hidden_TD,
        "gradient of weights": grad_weight_VD,
    }
