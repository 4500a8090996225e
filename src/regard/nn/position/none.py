"""No position: attention sees a bag of words."""

from typing import Literal

from regard.config import mechanism
from regard.nn.position.contract import Position, PositionChoice
from regard.nn.sizes import Sizes


@mechanism("P0", "—", "Vaswani 2017, 3.5 (what it would be without)")
class NoPositionConfig(PositionChoice):
    """Order-blind: in an encoder, permuted words give the permuted output."""

    kind: Literal["none"] = "none"

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        """The module of the encoder or of the decoder, by `role`."""
        return Position()
