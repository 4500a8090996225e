"""The position-wise network between attentions, and its activations."""

from collections.abc import Callable
from functools import partial
from typing import Literal

from torch import Tensor, nn

from regard.nn.linear import Linear, activated

Activation = Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu"]
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu_tanh": partial(nn.GELU, approximate="tanh"),
    "swish": nn.SiLU,
}


class FeedForward(nn.Module):
    """max(0, xW₁ + b₁)W₂ + b₂ (Vaswani 2017, eq. 2), or another activation in the middle."""

    parts = 1  # how many products of the input the inner layer is made of

    def __init__(self, size: int, inner: int, activation: str = "relu", dropout: nn.Module | None = None) -> None:
        super().__init__()
        self.dropout = dropout or nn.Identity()  # on the inner layer's output
        self.expand = Linear(size, self.parts * inner)
        self.activation = ACTIVATIONS.get(activation, nn.SiLU)()
        self.contract = Linear(inner, size)

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

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.expand(x).chunk(2, -1)
        return self.contract(self.dropout(self.activation(gate) * value))


def feed_forward(size: int, inner: int, activation: str, dropout: nn.Module | None = None) -> FeedForward:
    return (GatedFeedForward if activation == "swiglu" else FeedForward)(size, inner, activation, dropout)
