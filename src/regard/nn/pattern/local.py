"""Luong's local attention to the source: a few places around one that is assumed, or predicted."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.config import mechanism
from regard.nn.layout import AttentionContext, at, distance
from regard.nn.pattern.contract import Pattern, require_at_least
from regard.nn.sizes import Sizes


@mechanism("M4", "|j − t| ≤ d", "Luong 2015, 3.2")
class LocalM(Pattern):
    """Source places at most d away from the target's own place, as if both went in step."""

    places: ClassVar[tuple[str, ...]] = ("cross",)

    d: int

    def __post_init__(self) -> None:
        require_at_least(f"local_m({self.d})", "d", self.d, 1)

    def allow(self, call: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return distance(call, b, i, j).abs() <= self.d


@mechanism(
    "M4",
    "|j − p| ≤ d, weights · exp(−(j − p)² / 2σ²); p = S · sigmoid(vᵀtanh(W q)), σ = d/2",
    "Luong 2015, eq. 9 and 10",
)
class LocalP(Pattern):
    """Source places at most d away from a predicted centre, and less of those far from it."""

    places: ClassVar[tuple[str, ...]] = ("cross",)
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
        return guess.to(torch.promote_types(guess.dtype, torch.float32)).sigmoid()  # places need more than 8 bits


@dataclass(frozen=True, eq=False)
class BuiltLocalP(Pattern):
    """local_p with what it predicts by."""

    by_head = True

    d: int
    centre: CentrePredictor

    def modules(self) -> Iterator[nn.Module]:
        yield self.centre

    def bind(self, q: Tensor, call: AttentionContext, layer: int, past: bool = False) -> Pattern:
        centre = self.centre(q) * call.keys.lengths()[:, None, None]  # [B, H, Q], in places of the row's own source
        return BoundLocalP(self.d, centre, q.dtype)


@dataclass(frozen=True, eq=False)
class BoundLocalP(Pattern):
    """local_p with its centres."""

    by_head = True

    d: int
    centre: Tensor  # [B, H, Q]
    dtype: torch.dtype  # of the weights

    @property
    def rows(self) -> int:  # type: ignore[override]
        return len(self.centre)

    def allow(self, call: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (at(call.keys.position, b, j) - self.centre[b, h, i]).abs() <= self.d

    def gain(self, call: AttentionContext) -> Tensor:
        away = call.keys.position[:, None, None] - self.centre[..., None]  # [B, H, Q, K]
        return torch.exp(-2 * (away / self.d) ** 2).to(self.dtype)  # σ = d/2 (Luong 2015, eq. 10)
