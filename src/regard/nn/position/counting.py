"""The number of a place itself, added to the word vectors: what sinusoids are explained by."""

from typing import ClassVar

import torch
from torch import Tensor

from regard.config import choice
from regard.nn.layout import Layout
from regard.nn.position.contract import Position, PositionConfig
from regard.nn.sizes import Sizes


class Counting(Position):
    def embed(self, x: Tensor, layout: Layout) -> Tensor:
        return x + (layout.position[..., None] + 1).to(x.dtype)  # [B or 1, N, 1]


class NormalisedCounting(Position):
    def embed(self, x: Tensor, layout: Layout) -> Tensor:
        return x + ((layout.position + 1) / _lengths(layout))[..., None].to(x.dtype)


def _lengths(layout: Layout) -> Tensor:
    """N of the sequence that each position belongs to: [B or 1, 1], or [B or 1, N] where several share a row."""
    if layout.spans is None and layout.document is None:
        return layout.lengths()[:, None]
    sequence = (layout.position == 0).cumsum(-1) - 1
    counts = torch.zeros_like(layout.position).scatter_add_(-1, sequence, torch.ones_like(sequence))
    return counts.gather(-1, sequence)


@choice("counting", "P7", "x_n + n, n = 1, 2, …", "—")
class CountingConfig(PositionConfig):
    """The number of the place in every feature: it grows without bound, and far places drown their words."""

    embeds: ClassVar[bool] = True

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        return Counting()


@choice("normalised_counting", "P7", "x_n + n/N", "—")
class NormalisedCountingConfig(PositionConfig):
    """The number as a share of the length: bounded, but a step means less in a longer text; N must be known."""

    roles: ClassVar[tuple[str, ...]] = ("encoder",)

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        return NormalisedCounting()
