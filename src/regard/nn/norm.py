"""Normalising layers: over the features of a position, or, for the comparison, over the positions of a batch."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from regard.nn import dispatch
from regard.nn.dropout import Dropout


class LayerNorm(nn.LayerNorm):
    """(x − mean) / √(variance + ε) over the D features of each position (Ba 2016)."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        fast = dispatch.fast("layer_norm", x)
        return fast(x, self) if fast else super().forward(x)


class BatchNorm(nn.BatchNorm1d):
    """The same over all real positions of the batch, by feature (Ioffe 2015); running averages when not training."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        if real is None or not self.training:
            return super().forward(x.flatten(0, -2)).view_as(x)
        out = torch.zeros_like(x)  # padding counts for nothing
        out[real] = super().forward(x[real]).to(x.dtype)
        return out


class PartialLayerNorm(nn.LayerNorm):
    """LayerNorm without its gain, without its bias, or without both; kernels serve it as torch has it."""

    def __init__(self, size: int, eps: float, gain: bool, bias: bool) -> None:
        super().__init__(size, eps)
        for name in [name for name, kept in (("weight", gain), ("bias", bias)) if not kept]:
            self.register_parameter(name, None)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    """x / √(mean(x²) + ε) over the D features of each position, without mean and bias (Zhang 2019)."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return super().forward(x)


class NoNorm(nn.Module):
    """The identity, where there is no norm."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return x


NormKind = Literal["layer", "rms", "batch", "none"]
NORMS: dict[str, Callable[[int, float, bool, bool], nn.Module]] = {  # of D = size features, ε, and with gain and bias
    "layer": lambda size, eps, gain, bias: (
        LayerNorm(size, eps=eps) if gain and bias else PartialLayerNorm(size, eps, gain, bias)
    ),
    "rms": lambda size, eps, gain, bias: RMSNorm(size, eps, elementwise_affine=gain),
    "batch": lambda size, eps, gain, bias: BatchNorm(size, eps=eps),
    "none": lambda size, eps, gain, bias: NoNorm(),
}


def build_norm(kind: str, size: int, eps: float = 1e-5, gain: bool = True, bias: bool = True) -> nn.Module:
    """A norm over D = size features; gain and bias are learned where it has them."""
    return NORMS[kind](size, eps, gain, bias)


def add_norm(x: Tensor, y: Tensor, norm: nn.Module, dropout: Dropout, real: Tensor | None = None) -> Tensor:
    """norm(x + dropout(y))."""
    if isinstance(norm, LayerNorm) and (fast := dispatch.fast("add_norm", x)):
        return fast(x, y, norm, dropout)
    return norm(x + dropout(y), real)


def norm_beside(x: Tensor, norm: nn.Module, real: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """norm(x), and x itself, which goes on beside it: their gradients may then be added in one pass."""
    if isinstance(norm, LayerNorm) and (fast := dispatch.fast("norm_beside", x)):
        return fast(x, norm)
    return norm(x, real), x
