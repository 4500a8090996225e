"""How alike are a query and a key? One class a choice; each maps q [B,H,Q,d], k [B,H,K,d] to scores [B,H,Q,K]."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn


class Score(nn.Module):
    scale: float | None = None  # set where the score is scale · qᵀk, which fast kernels compute themselves

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        raise NotImplementedError


class ScaledDot(Score):
    """qᵀk / √d_k (Vaswani 2017, eq. 1): keeps the variance of scores at 1 whatever the size of a head."""

    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.scale: float = d_k**-0.5

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return (q * self.scale) @ k.transpose(-2, -1)


@dataclass(frozen=True)
class ScaledDotConfig:
    kind: Literal["scaled_dot"] = "scaled_dot"

    def build(self, d_k: int) -> Score:
        return ScaledDot(d_k)


ScoreConfig = ScaledDotConfig  # a union once there are more: adding a score is one class and one name here
