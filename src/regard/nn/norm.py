"""Normalising layers: over the features of a position, or, for the comparison, over the positions of a batch."""

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


class NoNorm(nn.Module):
    """The identity, where a stack needs no norm."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return x


NORMS: dict[str, type[LayerNorm] | type[BatchNorm]] = {"layer": LayerNorm, "batch": BatchNorm}


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
