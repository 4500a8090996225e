"""Luong's local attention to the source: a few positions around one that is assumed, or predicted."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.config import choice
from regard.nn.layout import AttentionContext, at, distance
from regard.nn.pattern.masks import Pattern, require_at_least
from regard.nn.sizes import Sizes


@choice("local_m", "M4", "|j − t| ≤ d", "Luong 2015, 3.2")
class LocalM(Pattern):
    """Source positions at most d away from the target's own position, as if both went in step."""

    roles: ClassVar[tuple[str, ...]] = ("cross",)

    d: int

    def __post_init__(self) -> None:
        require_at_least(f"local_m({self.d})", "d", self.d, 1)

    def allow(self, context: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return distance(context, b, i, j).abs() <= self.d


@choice(
    "local_p",
    "M4",
    "|j − p| ≤ d, weights · exp(−(j − p)² / 2σ²); p = S · sigmoid(vᵀtanh(W q)), σ = d/2",
    "Luong 2015, eq. 9 and 10",
)
class LocalP(Pattern):
    """Source positions at most d away from a predicted centre, and less of those far from it."""

    roles: ClassVar[tuple[str, ...]] = ("cross",)
    by_head = True

    d: int

    def __post_init__(self) -> None:
        require_at_least(f"local_p({self.d})", "d", self.d, 1)

    def build(self, sizes: Sizes) -> Pattern:
        return BuiltLocalP(self.d, CentrePredictor(sizes.d_k))


class CentrePredictor(nn.Module):
    """Which part of the source a query is about, from 0 to 1: sigmoid(vᵀtanh(W q)) (Luong 2015, eq. 9)."""

    def __init__(self, d_q: int) -> None:
        super().__init__()
        self.inner = nn.Linear(d_q, d_q, bias=False)
        self.outer = nn.Linear(d_q, 1, bias=False)

    def forward(self, q: Tensor) -> Tensor:
        guess = self.outer(self.inner(q).tanh())[..., 0]  # [B, H, Q]
        return guess.to(torch.promote_types(guess.dtype, torch.float32)).sigmoid()  # positions need more than 8 bits


@dataclass(frozen=True, eq=False)
class BuiltLocalP(Pattern):
    """local_p with its parameters."""

    by_head = True

    d: int
    centre: CentrePredictor

    def modules(self) -> Iterator[nn.Module]:
        yield self.centre

    def bind(self, q: Tensor, context: AttentionContext, layer: int, past: bool = False) -> Pattern:
        centre = self.centre(q) * context.keys.lengths()[:, None, None]  # [B, H, Q], in source positions
        return BoundLocalP(self.d, centre, q.dtype)


@dataclass(frozen=True, eq=False)
class BoundLocalP(Pattern):
    """local_p with its centres."""

    by_head = True

    d: int
    centre: Tensor  # [B, H, Q]
    dtype: torch.dtype  # of the weights

    @property
    def rows(self) -> int:
        return len(self.centre)

    def allow(self, context: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (at(context.keys.position, b, j) - self.centre[b, h, i]).abs() <= self.d

    def gain(self, context: AttentionContext) -> Tensor:
        away = context.keys.position[:, None, None] - self.centre[..., None]  # [B, H, Q, K]
        return torch.exp(-2 * (away / self.d) ** 2).to(self.dtype)  # σ = d/2 (Luong 2015, eq. 10)
