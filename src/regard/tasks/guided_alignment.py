"""Guided alignment (Chen 2016): cross-attention is trained, beside the words, on word alignments of the corpora."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.config import option
from regard.nn.record import AttentionRecorder
from regard.predict.pairs import select_heads


@dataclass(frozen=True)
class GuidedAlignment:
    weight: float = option(0.05, "of the alignment loss beside the loss of the words")
    layer: int | None = option(None, "which attention to the source is taught, from 1; none: the one before the last")
    heads: list[int] | None = option(None, "which of its heads, from 1, whose mean is taught; none: all")

    def __post_init__(self) -> None:
        if not self.weight > 0:
            raise ValueError(f"weight must be above 0, not {self.weight}")
        if any(n < 1 for n in (self.layer, *(self.heads or [])) if n is not None):
            raise ValueError("layers and heads are counted from 1")

    def loss(self, record: AttentionRecorder, links: Tensor) -> Tensor:
        """−Σ_t mean over the links (t, s) of log a_ts, a being the mean attention of the heads (Chen 2016, eq. 5)."""
        weights = torch.stack(record.layers("cross"))  # [layers, B, H, T, S]
        row, t, s = links.T
        a = select_heads(weights.transpose(1, 2).flatten(2, 3), self.layer, self.heads)  # [B·T, S]
        place = row * weights.shape[-2] + t
        share = torch.zeros(len(a), device=a.device).index_add(0, place, torch.ones_like(place, dtype=torch.float32))
        return -(a[place, s].clamp(min=1e-9).log() / share[place]).sum()
