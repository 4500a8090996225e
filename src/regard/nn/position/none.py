"""No position: attention sees a bag of words."""

from typing import ClassVar, Literal

from regard.config import mechanism
from regard.nn.position.contract import Position
from regard.nn.sizes import Sizes


@mechanism("P0", "—", "Vaswani 2017, 3.5 (what it would be without)")
class NoPositionConfig:
    """Order-blind: in an encoder, permuted words give the permuted output."""

    places: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    kind: Literal["none"] = "none"

    def check(self, sizes: Sizes) -> None:
        """Raise ValueError where a model of these sizes cannot have these positions."""

    def build(self, sizes: Sizes, place: str = "encoder") -> Position:
        """The module of the encoder or of the decoder: `place` says which."""
        return Position()
