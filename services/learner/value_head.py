"""PPO's value function: what to expect of a response, from the hidden state that predicts its next token."""

import torch  # noqa: TID253  # a module of the engine's
from torch import Tensor  # noqa: TID253

__all__ = ["ValueHead"]


class ValueHead(torch.nn.Linear):
    """V = w · hidden + b, in float32 whatever the policy computes in; w and b are 0 at first.

    So the first values claim nothing, and no noise of a random head reaches the policy's layers.
    Source: "The N Implementation Details of RLHF with PPO",
    https://iclr-blogposts.github.io/2024/blog/the-n-implementation-details-of-rlhf-with-ppo/

    Args:
        hidden_size: of the policy.

    """

    def __init__(self, hidden_size: int) -> None:
        super().__init__(hidden_size, 1)

    def reset_parameters(self) -> None:
        """Set all to 0."""
        torch.nn.init.zeros_(self.weight)
        torch.nn.init.zeros_(self.bias)

    def forward(self, hidden_ND: Tensor) -> Tensor:
        """Values of N states."""
        return torch.nn.functional.linear(hidden_ND.float(), self.weight.float(), self.bias.float()).squeeze(-1)
