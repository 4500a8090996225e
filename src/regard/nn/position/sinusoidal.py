"""Fixed waves, added to the word vectors."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from regard.config import choice, option
from regard.nn.layout import Layout
from regard.nn.position.contract import Position, PositionConfig
from regard.nn.position.join import JOINS, Join
from regard.nn.sizes import Sizes


def sinusoids(position: Tensor, size: int, order: str = "interleaved", base: float = 10000.0) -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(same) (Vaswani 2017, 3.5). [...] -> [..., D]

    `halves` puts all sines first, as Hugging Face's Marian does.
    """
    frequency = base ** (-torch.arange(0, size, 2, dtype=torch.float64, device=position.device) / size)
    angle = position[..., None].to(torch.float64) * frequency  # [..., D/2]
    if order == "halves":
        return torch.cat([angle.sin(), angle.cos()], -1)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


class SinusoidTable(nn.Module):
    """Sinusoids at the positions of a layout. Any position can be computed, so the table grows when needed."""

    table: Tensor

    def __init__(self, size: int, order: str, base: float = 10000.0) -> None:
        super().__init__()
        self.kind = (size, order, base)
        self.cast: dict[tuple[torch.dtype, torch.device], Tensor] = {}  # the table, by dtype and device
        self.earlier: list[Tensor] = []  # shorter ones, which captured CUDA graphs still read
        self.register_buffer("table", sinusoids(torch.arange(1024), *self.kind), persistent=False)

    def forward(self, layout: Layout, dtype: torch.dtype) -> Tensor:
        """[N, D] or [B, N, D]"""
        kind = dtype, self.table.device
        table = self.cast.get(kind)
        if table is None or layout.end > len(table):
            if table is not None:
                self.earlier.append(table)
            table = self.cast[kind] = self._table(layout.end, dtype)
        return table[: layout.length] if layout.right_padded else nn.functional.embedding(layout.position, table)

    @torch.inference_mode(False)  # a table made during validation serves training too
    def _table(self, end: int, dtype: torch.dtype) -> Tensor:
        if end > len(self.table):
            self.table = sinusoids(torch.arange(2 * end, device=self.table.device), *self.kind).to(self.table.dtype)
        return self.table.to(dtype)


class Sinusoidal(Position):
    def __init__(self, size: int, order: str, join: str = "add") -> None:
        super().__init__()
        self.waves, self.join = SinusoidTable(size, order), JOINS[join](size)

    def embed(self, x: Tensor, layout: Layout) -> Tensor:
        return self.join(x, self.waves(layout, x.dtype))


@choice(
    "sinusoidal", "P1", "PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(p / 10000^(2i/D))", "Vaswani 2017, 3.5"
)
class SinusoidalConfig(PositionConfig):
    """Waves of geometric wavelengths, added to the word vectors; nothing is learned."""

    embeds: ClassVar[bool] = True

    layout: Literal["interleaved", "halves"] = option("interleaved", "sine beside cosine, or all sines first")
    join: Join = option("add", "add to the word vector, or concat and project back to its size")

    def check(self, sizes: Sizes) -> None:
        if sizes.size % 2:
            raise ValueError(f"sinusoidal positions are pairs of sine and cosine, and the size {sizes.size} is odd")

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        return Sinusoidal(sizes.size, self.layout, self.join)
