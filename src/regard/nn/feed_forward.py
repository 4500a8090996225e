"""Linear layers, f(x Wᵀ + b), and the position-wise network that they make between attentions."""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import lookup
from regard.errors import RegardError
from regard.nn import dispatch
from regard.nn.dropout import Dropout

Activation = Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu"]
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, approximate="tanh"),
    "swish": nn.SiLU,
}


class Linear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    fast = dispatch.fast("linear", x)
    return fast(x, weight, bias) if fast else F.linear(x, weight, bias)


def activated(layer: nn.Module, x: Tensor, activation: nn.Module) -> Tensor:
    """f(x Wᵀ + b), where f is an activation."""
    if isinstance(activation, nn.ReLU) and hasattr(layer, "rectified"):  # inference weights that do both at once
        return layer.rectified(x)  # type: ignore[operator]
    fast = dispatch.fast("activated", x) if isinstance(layer, Linear) else None
    out = fast(x, layer.weight, layer.bias, activation) if fast else None
    return activation(layer(x)) if out is None else out


class FeedForward(nn.Module):
    """max(0, xW₁ + b₁)W₂ + b₂ (Vaswani 2017, eq. 2), or another activation in the middle."""

    parts = 1  # how many products of the input the inner layer is made of

    def __init__(
        self, size: int, inner: int, activation: str = "relu", dropout: float | nn.Module | None = None
    ) -> None:
        super().__init__()
        if isinstance(dropout, float | int):
            dropout = Dropout(dropout)
        self.dropout = dropout or nn.Identity()  # on the inner layer's output
        self.expand = Linear(size, self.parts * inner)
        self.activation = self._activation(activation)
        self.contract = Linear(inner, size)

    def _activation(self, name: str) -> nn.Module:
        if name == "swiglu":
            raise RegardError("swiglu has a gate: write GatedFeedForward in place of FeedForward")
        return lookup(ACTIVATIONS, name, f"{type(self).__name__}: activation")()

    def forward(self, x: Tensor) -> Tensor:
        return self.contract(self.dropout(activated(self.expand, x, self.activation)))

    def reset_parameters(self) -> None:
        for part in self.expand.weight.chunk(self.parts):
            nn.init.xavier_uniform_(part)
        nn.init.xavier_uniform_(self.contract.weight)
        for linear in (self.expand, self.contract):
            nn.init.zeros_(linear.bias)


class GatedFeedForward(FeedForward):
    """(swish(xW₁ + b₁) ⊙ (xW₃ + b₃))W₂ + b₂: SwiGLU (Shazeer 2020)."""

    parts = 2

    def __init__(
        self, size: int, inner: int, activation: str = "swiglu", dropout: float | nn.Module | None = None
    ) -> None:
        super().__init__(size, inner, activation, dropout)

    def _activation(self, name: str) -> nn.Module:
        return nn.SiLU() if name == "swiglu" else super()._activation(name)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.expand(x).chunk(2, -1)
        return self.contract(self.dropout(self.activation(gate) * value))


def feed_forward(size: int, inner: int, activation: str, dropout: nn.Module | None = None) -> FeedForward:
    return (GatedFeedForward if activation == "swiglu" else FeedForward)(size, inner, activation, dropout)
