"""No position: attention sees a bag of words."""

from typing import ClassVar

from regard.config import choice
from regard.nn.position.contract import Position, PositionConfig
from regard.nn.sizes import Sizes


@choice("none", "P0", "—", "Vaswani 2017, 3.5 (what it would be without)")
class NoPositionConfig(PositionConfig):
    """Order-blind: in an encoder, permuted words give the permuted output."""

    embeds: ClassVar[bool] = True

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        return Position()
