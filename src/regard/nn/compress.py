"""Are keys and values shortened first? A compressor maps (k, v, layout) to fewer keys and the layout they have."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from regard.nn.layout import Layout
from regard.nn.sizes import Sizes


class NoCompression(nn.Module):
    """Every key stays."""

    shortens = False

    def forward(self, k: Tensor, v: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Layout]:
        return k, v, layout


@dataclass(frozen=True)
class NoCompressionConfig:
    """Every key and value stays."""

    id: ClassVar[str] = "—"
    formula: ClassVar[str] = "—"
    paper: ClassVar[str] = "—"
    shared_by_layers: ClassVar[bool] = False

    kind: Literal["none"] = "none"

    def check(self, place: str, longest: int) -> None:
        """Raise ValueError where an attention at this place, over at most `longest` keys, cannot have it."""

    def build(self, sizes: Sizes) -> nn.Module:
        return NoCompression()


CompressConfig = NoCompressionConfig
