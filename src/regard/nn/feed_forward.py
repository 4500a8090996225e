"""The position-wise network between attentions, and its activations."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from regard.config import option

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "swish": nn.SiLU}


class FeedForward(nn.Module):
    """max(0, xW₁ + b₁)W₂ + b₂ (Vaswani 2017, eq. 2), or another activation in the middle."""

    def __init__(self, size: int, inner: int, activation: str) -> None:
        super().__init__()
        self.expand = nn.Linear(size, inner)
        self.activation = ACTIVATIONS[activation]()
        self.contract = nn.Linear(inner, size)

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(self.activation(self.expand(x)))

    def reset_parameters(self) -> None:
        for linear in (self.expand, self.contract):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)


@dataclass(frozen=True)
class FeedForwardConfig:
    inner: int = option(2048, "width of the inner layer")
    activation: Literal["relu", "gelu", "swish"] = option("relu", "between the two products")

    def build(self, size: int) -> FeedForward:
        return FeedForward(size, self.inner, self.activation)
