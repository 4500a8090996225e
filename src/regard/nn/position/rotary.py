"""Queries and keys are turned by an angle that grows with position, so that their product knows the distance alone."""

from typing import Literal

import torch
from torch import Tensor

from regard.config import choice, option
from regard.nn import dispatch
from regard.nn.layout import Layout
from regard.nn.position.contract import Position, PositionConfig
from regard.nn.position.sinusoidal import SinusoidTable
from regard.nn.sizes import Sizes

PAIRS = {"interleaved": (-1, (-1, 2)), "halves": (-2, (2, -1))}  # where the two of a pair stand once d_k is unfolded


class Rotary(Position):
    def __init__(self, d_k: int, pairs: str, base: float) -> None:
        super().__init__()
        self.axis, self.unfolded = PAIRS[pairs]
        self.waves = SinusoidTable(d_k, "halves", base)  # sines, then cosines, however the pairs stand

    def rotate(self, x: Tensor, layout: Layout) -> Tensor:
        """(a, b) → (a cos pθ − b sin pθ, a sin pθ + b cos pθ), θ_i = base^(−2i/d_k) (Su 2021, eq. 34)."""
        waves = self.waves(layout, torch.promote_types(x.dtype, torch.float32))  # bfloat16 is too coarse for angles
        if fast := dispatch.fast("rotate", x):
            return fast(x, waves, self.axis == -1)
        sin, cos = waves.unsqueeze(-3).chunk(2, -1)  # [B or 1, 1, N, d/2]
        a, b = x.unflatten(-1, self.unfolded).unbind(self.axis)  # [B, H, N, d/2]
        return torch.stack([a * cos - b * sin, a * sin + b * cos], self.axis).flatten(-2).to(x.dtype)


@choice("rotary", "P4", "(R_i q)ᵀ(R_j k) = qᵀ R_{j−i} k, R_p turns pair n by p · base^(−2n/d_k)", "Su 2021, 3.2")
class RotaryConfig(PositionConfig):
    """Queries and keys are rotated by their position; nothing is learned."""

    layout: Literal["interleaved", "halves"] = option("interleaved", "pairs of neighbours, or one of each half")
    base: float = option(10000.0, "wavelengths go from 2π to about 2π · base")

    def __post_init__(self) -> None:
        if self.base <= 0:
            raise ValueError(f"base must be above 0, not {self.base}")

    def check(self, sizes: Sizes) -> None:
        if sizes.d_k % 2:
            raise ValueError(f"rotary positions turn pairs of dimensions, and a head's d_k of {sizes.d_k} is odd")

    def build(self, sizes: Sizes, role: str = "encoder") -> Position:
        return Rotary(sizes.d_k, self.layout, self.base)
