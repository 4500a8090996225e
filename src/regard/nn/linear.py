"""f(x Wᵀ + b)."""

import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn import dispatch


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
