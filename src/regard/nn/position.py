"""How does order enter? A position object offers four hooks, identity unless a choice needs them.

embed: on the word vectors; rotate: on queries and keys; bias: added to the scores; mix: added to the output.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.nn.layout import Call, Layout


class Position(nn.Module):
    """No position at all: attention is then blind to order (P0)."""

    mixes = False  # True where `mix` adds to the output, which only plain and block backends serve

    def embed(self, x: Tensor, layout: Layout) -> Tensor:
        return x

    def rotate(self, x: Tensor, layout: Layout) -> Tensor:
        """Queries or keys [B, H, N, d] at their places; keys are rotated once, before they are cached."""
        return x

    def bias(self, q: Tensor, call: Call) -> Tensor | None:
        return None

    def mix(self, weights: Tensor, call: Call) -> Tensor | None:
        return None


def sinusoids(position: Tensor, size: int, layout: str = "interleaved") -> Tensor:
    """PE(p, 2i) = sin(p / 10000^(2i/D)), PE(p, 2i+1) = cos(same) (Vaswani 2017, 3.5). [...] -> [..., D]

    `halves` puts all sines first, as Hugging Face's Marian does.
    """
    frequency = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64, device=position.device) / size)
    angle = position[..., None].to(torch.float64) * frequency  # [..., D/2]
    if layout == "halves":
        return torch.cat([angle.sin(), angle.cos()], -1)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


class Sinusoidal(Position):
    """Fixed waves added to the word vectors (P1); any position can be computed, so the table grows when needed."""

    table: Tensor

    def __init__(self, size: int, layout: str) -> None:
        super().__init__()
        self.size, self.layout = size, layout
        self.register_buffer("table", sinusoids(torch.arange(1024), size, layout), persistent=False)

    def embed(self, x: Tensor, layout: Layout) -> Tensor:
        if layout.end > len(self.table):
            longer = torch.arange(2 * layout.end, device=self.table.device)
            self.table = sinusoids(longer, self.size, self.layout).to(self.table.dtype)
        waves = self.table[: layout.length] if layout.right_padded else self.table[layout.position]  # [(B,) N, D]
        return x + waves.to(x.dtype)


@dataclass(frozen=True)
class NoneConfig:
    kind: Literal["none"] = "none"

    def check(self, size: int) -> None:
        """Raise ValueError where a model of this size cannot have these positions."""

    def build(self, size: int) -> Position:
        return Position()


@dataclass(frozen=True)
class SinusoidalConfig:
    kind: Literal["sinusoidal"] = "sinusoidal"
    layout: Literal["interleaved", "halves"] = "interleaved"

    def check(self, size: int) -> None:
        if size % 2:
            raise ValueError(f"sinusoidal positions are pairs of sine and cosine, and the size {size} is odd")

    def build(self, size: int) -> Position:
        return Sinusoidal(size, self.layout)


PositionConfig = NoneConfig | SinusoidalConfig
