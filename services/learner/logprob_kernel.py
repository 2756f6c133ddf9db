"""Which implementation computes token log-probs: chosen once a process, for the policy and its reference alike."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Literal, Protocol, Self

from packaging.version import Version

from pacs.algo import token_logprobs
from pacs.algo.fused_logprobs import applies_exactly, fused_token_logprobs
from pacs.errors import BadInput
from pacs.runtime.config import RunConfig

if TYPE_CHECKING:
    from torch import Tensor

    from pacs.algo import TokenLogprobs

__all__ = ["Installed", "LogprobKernel", "agreed", "choose_kernel"]

LEAST_LIGER = "0.8.5"  # until July 2026 releases multiplied every gradient by the first token's coefficient
INSTALL = f"pip install 'liger-kernel>={LEAST_LIGER}' triton, or pacs-rlvr[gpu]"


class Compute(Protocol):
    """See `pacs.algo.token_logprobs`."""

    def __call__(
        self,
        hidden_TD: "Tensor",
        weight_VD: "Tensor",
        token_T: "Tensor",
        *,
        temperature: float,
        chunk_tokens: int,
        with_entropy: bool,
    ) -> "TokenLogprobs":
        """Log-probs of given tokens."""


@dataclass(frozen=True)
class LogprobKernel:
    """A choice.

    Args:
        name: of the implementation.
        reason: why it and not the other, for the log.

    """

    name: Literal["torch", "liger"]
    reason: str

    @property
    def compute(self) -> Compute:
        """The implementation."""
        return fused_token_logprobs if self.name == "liger" else token_logprobs

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"


@dataclass(frozen=True)
class Installed:
    """What this machine has.

    Args:
        cuda: whether torch sees a GPU.
        triton: whether there is a compiler of kernels.
        liger: version of liger-kernel; None without it.

    """

    cuda: bool
    triton: bool
    liger: str | None

    @classmethod
    def here(cls) -> Self:
        """Look around, without importing either package."""
        import torch

        try:
            liger = metadata.version("liger-kernel")
        except metadata.PackageNotFoundError:
            liger = None
        return cls(torch.cuda.is_available(), importlib.util.find_spec("triton") is not None, liger)


def choose_kernel(config: RunConfig, installed: Installed, try_out: Callable[[str], str | None]) -> LogprobKernel:
    """Choose as `learner.logprob_kernel` says; on auto the fused kernel wherever nothing speaks against it.

    Args:
        config: of the run.
        installed: on this machine.
        try_out: runs the kernel in a dtype and says what is wrong with it, if anything; `kernel_trial.try_out`.

    Raises:
        BadInput: the fused kernel is asked for and cannot be used; says why and what to do.

    """
    wanted = config.learner.logprob_kernel
    if wanted == "torch":
        return LogprobKernel("torch", "learner.logprob_kernel=torch")
    obstacle = _obstacle(config, installed) or try_out(config.model.dtype)
    if obstacle is None:
        return LogprobKernel("liger", f"liger-kernel {installed.liger} agrees with torch on this GPU")
    if wanted == "liger":
        raise BadInput(
            f"learner.logprob_kernel=liger cannot be had here: {obstacle}; change that, or set "
            "learner.logprob_kernel to auto or torch"
        )
    return LogprobKernel("torch", obstacle)


def agreed(kernel: LogprobKernel, total: Callable[[float], float]) -> LogprobKernel:
    """The fused kernel where every rank has chosen it, torch on all of them otherwise.

    Args:
        kernel: this rank's choice.
        total: sums a number over the ranks.

    """
    elsewhere = total(float(kernel.name == "torch"))
    if kernel.name == "liger" and elsewhere:
        return LogprobKernel("torch", f"{elsewhere:.0f} other ranks cannot use the fused kernel; their log says why")
    return kernel


def _obstacle(config: RunConfig, installed: Installed) -> str | None:
    """What rules the fused kernel out before it is tried."""
    if not installed.cuda:
        return "it needs a GPU, and torch sees none"
    if installed.liger is None or not installed.triton or Version(installed.liger) < Version(LEAST_LIGER):
        found = f"liger-kernel {installed.liger or 'missing'}, triton {'there' if installed.triton else 'missing'}"
        return f"it needs liger-kernel>={LEAST_LIGER} and triton, got {found} ({INSTALL})"
    if config.learner.zero_stage == 3:
        return (
            "it keeps the head of the forward pass until its own backward pass, which at learner.zero_stage=3 is a "
            "second whole copy beside the one gathered for it, and was never checked"
        )
    return _temperature_obstacle(config.model.dtype, config.rollout.temperature)


def _temperature_obstacle(dtype: str, temperature: float) -> str | None:
    import torch

    if not applies_exactly(temperature, getattr(torch, dtype)):
        return (
            f"it has no temperature, and hidden states in {dtype} divided by rollout.temperature={temperature:g}, "
            "which is no power of two, would be rounded"
        )
    return None
