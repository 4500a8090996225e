"""Learned vectors for the clipped distance from query to key, added to the keys and, if chosen, to the values."""

from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from regard.config import at_least, choice, option
from regard.nn.layout import AttentionContext, Grid
from regard.nn.position.contract import Bias, Position, PositionConfig, clipped_distance
from regard.nn.sizes import Sizes


class RelativeKeys(Position):
    """q_iᵀ aᴷ_{j−i} / √d_k on the scores: the paper's term, scaled as the paper scales it whatever the score is."""

    def __init__(self, sizes: Sizes, distance: int) -> None:
        super().__init__()
        self.distance, self.scale = distance, sizes.d_k**-0.5
        self.keys = _table(distance, sizes.d_k)

    def bias(self, q: Tensor, context: AttentionContext) -> Bias:
        table = (q * self.scale) @ self.keys.T  # [B, H, Q, 2k+1] (Shaw 2018, eq. 5)
        return Bias(table, partial(self.column, context), (type(self).column, self.distance))

    def column(self, context: AttentionContext, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Which of the vectors query i has for key j."""
        return clipped_distance(context, self.distance, b, i, j)


class RelativeKeysValues(RelativeKeys):
    """And Σ_j w_ij aⱽ_{j−i} on the output."""

    def __init__(self, sizes: Sizes, distance: int) -> None:
        super().__init__(sizes, distance)
        self.values = _table(distance, sizes.d_v)

    def mix(self, weights: Tensor, context: AttentionContext, grid: Grid) -> Tensor:
        """Weights of equal distance are summed first: no [Q, K, d_v] is ever built."""
        b, _, i, j = grid
        column = self.column(context, b, i, j).expand_as(weights)
        empty = weights.new_zeros(*weights.shape[:-1], len(self.values))
        return empty.scatter_add(-1, column, weights) @ self.values  # [B, H, Q, d_v] (Shaw 2018, eq. 3)


def _table(distance: int, size: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(2 * distance + 1, size)))


TERMS: dict[str, type[RelativeKeys]] = {"keys": RelativeKeys, "keys_values": RelativeKeysValues}


@choice(
    "relative",
    "P3",
    "q_iᵀ(k_j + aᴷ_{j−i}) / √d_k; Σ_j w_ij (v_j + aⱽ_{j−i}); j−i clipped to ±distance",
    "Shaw 2018, 3.2",
)
class RelativeConfig(PositionConfig):
    """Learned vectors for the distance from query to key, clipped, on keys and values.

    All heads share them, and so do all layers: one object serves the stack. The paper's layers have their own;
    a list that names the choice once for each layer gives that.
    """

    distance: int = option(16, "positions farther than this count as this far")
    terms: Literal["keys", "keys_values"] = option("keys_values", "on the keys alone, which is faster, or on both")

    def __post_init__(self) -> None:
        at_least(self, 1, "distance")

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        return TERMS[self.terms](sizes, self.distance)
