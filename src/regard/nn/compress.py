"""Are keys and values shortened first? A compressor maps (k, v, layout) to fewer keys and the layout they have."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from regard.nn.layout import Layout


class NoCompression(nn.Module):
    """Every key stays."""

    def forward(self, k: Tensor, v: Tensor, layout: Layout) -> tuple[Tensor, Tensor, Layout]:
        return k, v, layout


@dataclass(frozen=True)
class NoCompressionConfig:
    kind: Literal["none"] = "none"

    def build(self) -> nn.Module:
        return NoCompression()


CompressConfig = NoCompressionConfig
