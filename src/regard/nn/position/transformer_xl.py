"""Relative positions of Transformer-XL: fixed waves of the distance, and what a head looks for whatever the query."""

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.config import choice
from regard.nn.layout import AttentionContext, distance
from regard.nn.position.contract import Bias, Position, PositionConfig
from regard.nn.position.sinusoidal import sinusoids
from regard.nn.sizes import Sizes


class TransformerXL(Position):
    """((q_i + u)ᵀk_j + (q_i + v)ᵀ W_R R_{i−j}) / √d_k: u joins the query, and the rest is a bias (Dai 2019, 3.3)."""

    def __init__(self, sizes: Sizes, role: str) -> None:
        super().__init__()
        self.past_only, self.size, self.scale = role == "decoder", sizes.size, sizes.d_k**-0.5
        self.project = nn.Linear(sizes.size, sizes.heads * sizes.d_k, bias=False)
        self.content = nn.Parameter(torch.zeros(sizes.heads, 1, sizes.d_k))  # u: what a head looks for anywhere
        self.place = nn.Parameter(torch.zeros(sizes.heads, 1, sizes.d_k))  # v: where a head looks for anything
        self.reset_own()

    def reset_own(self) -> None:
        nn.init.normal_(self.content, std=0.02)
        nn.init.normal_(self.place, std=0.02)

    def query(self, q: Tensor) -> Tensor:
        return q + self.content.to(q.dtype)

    def bias(self, q: Tensor, context: AttentionContext) -> Bias:
        reach = context.farthest
        waves = context.once(("distances", reach, self.size, self.past_only), partial(self._waves, reach))  # [R, D]
        query = (q + (self.place - self.content).to(q.dtype)) * self.scale  # it has u already
        heads, d_k = len(self.content), q.shape[-1]
        if len(q) * q.shape[2] < d_k:  # a step of decoding: it projects the queries, not all distances
            weight = self.project.weight.unflatten(0, (heads, d_k)).to(q.dtype)  # [H, d_k, D]
            table = (query @ weight) @ waves.T.to(q.dtype)  # [B, H, Q, R]
        else:
            keys = self.project(waves).unflatten(-1, (heads, d_k)).transpose(0, 1).to(q.dtype)  # [H, R, d_k]
            table = query @ keys.transpose(1, 2)
        return Bias(table, partial(self.column, context, reach), (type(self).column, reach, self.past_only))

    def _waves(self, reach: int) -> Tensor:
        """R of every distance that occurs [R, D], all sines first, as in the authors' code."""
        first = 0 if self.past_only else -reach
        away = torch.arange(first, reach + 1, device=self.content.device)
        return sinusoids(away, self.size, "halves").to(self.content.dtype)

    def column(self, context: AttentionContext, reach: int, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Where the distance from key j back to query i stands among those that occur."""
        away = -distance(context, b, i, j)
        return away.clamp(0, reach) if self.past_only else away + reach  # a decoder's future is masked


@choice("transformer_xl", "P8", "((q_i + u)ᵀ k_j + (q_i + v)ᵀ W_R R_{i−j}) / √d_k", "Dai 2019, 3.3")
class TransformerXLConfig(PositionConfig):
    """Waves of the distance from query to key, learned to be read by every layer, and two vectors for each head."""

    per_layer: ClassVar[bool] = True

    def check(self, sizes: Sizes) -> None:
        if sizes.size % 2:
            raise ValueError(f"transformer_xl positions are pairs of sine and cosine, and the size {sizes.size} is odd")

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        return TransformerXL(sizes, role)
