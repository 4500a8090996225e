"""A learned vector for every position, joined to the word vectors, or to the input of every layer."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.config import at_least, choice, option
from regard.errors import RegardError
from regard.nn.layout import Layout
from regard.nn.position.contract import Position, PositionConfig
from regard.nn.position.join import JOINS, Join
from regard.nn.sizes import Sizes


class Learned(Position):
    def __init__(self, size: int, length: int, join: str) -> None:
        super().__init__()
        self.longest = length
        self.table = nn.Parameter(nn.init.normal_(torch.empty(length, size), std=size**-0.5))
        self.join = JOINS[join](size)

    def embed(self, x: Tensor, layout: Layout) -> Tensor:
        if layout.end > len(self.table):
            raise RegardError(
                f"the input has {layout.end} tokens, but learned positions end at {len(self.table)}; "
                "shorten it, or train with a larger model.position.length"
            )
        vectors = self.table[: layout.length] if layout.right_padded else F.embedding(layout.position, self.table)
        return self.join(x, vectors)


@choice("learned", "P2", "x_p + E[p]", "Gehring 2017, 3.1; Vaswani 2017, table 3 (E)")
class LearnedConfig(PositionConfig):
    """A table with a vector for each position; there is nothing past its end."""

    embeds: ClassVar[bool] = True

    length: int = option(512, "positions in the table; longer input is refused")
    join: Join = option("add", "add to the word vector, or concat and project back to its size")

    def __post_init__(self) -> None:
        at_least(self, 1, "length")

    @property
    def max_length(self) -> int:
        return self.length

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        return Learned(sizes.size, self.length, self.join)


class LearnedPerLayer(Learned):
    joins_layers = True


@choice("learned_per_layer", "P9", "x_p + E_l[p] in every layer l", "Al-Rfou 2018, 3")
class LearnedPerLayerConfig(LearnedConfig):
    """A table for each layer, joined to its input: a deep stack does not lose the order on its way."""

    embeds: ClassVar[bool] = False
    per_layer: ClassVar[bool] = True

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        return LearnedPerLayer(sizes.size, self.length, self.join)
