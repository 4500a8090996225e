"""Normalising layers: over the features of a place, or, for the comparison, over the places of a batch."""

import torch
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """(x − mean) / √(variance + ε) over the D features of each place (Ba 2016)."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return super().forward(x)


class BatchNorm(nn.BatchNorm1d):
    """The same over all real places of the batch, by feature (Ioffe 2015); running averages when not training."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        if real is None or not self.training:
            return super().forward(x.flatten(0, -2)).view_as(x)
        out = torch.zeros_like(x)  # padding counts for nothing
        out[real] = super().forward(x[real]).to(x.dtype)
        return out


NORMS: dict[str, type[LayerNorm] | type[BatchNorm]] = {"layer": LayerNorm, "batch": BatchNorm}
