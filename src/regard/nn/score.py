"""How alike are a query and a key? One class a choice; each maps q [B,H,Q,d], k [B,H,K,d] to scores [B,H,Q,K]."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from regard.nn.sizes import Sizes


class Score(nn.Module):
    scale: float | None = None  # set where the score is scale · qᵀk, which fast kernels compute themselves
    query_gain: float = 1.0  # what the query projection is multiplied by when weights begin

    def keys(self, k: Tensor) -> Tensor:
        """What a key becomes before it is compared; done once, and cached when decoding. [B, H, K, key_size]"""
        return k

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """Scores of queries and of keys that `keys` has prepared."""
        raise NotImplementedError


class ScaledDot(Score):
    def __init__(self, d_k: int) -> None:
        super().__init__()
        self.scale: float = d_k**-0.5

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return (q * self.scale) @ k.transpose(-2, -1)


@dataclass(frozen=True)
class ScaledDotConfig:
    """The dot product by √d_k: keeps the variance of scores at 1 whatever the size of a head."""

    id: ClassVar[str] = "S2"
    formula: ClassVar[str] = "qᵀk / √d_k"
    paper: ClassVar[str] = "Vaswani 2017, eq. 1"

    kind: Literal["scaled_dot"] = "scaled_dot"

    def build(self, sizes: Sizes, d_q: int | None = None) -> Score:
        return ScaledDot(sizes.d_k)


ScoreConfig = ScaledDotConfig  # a union once there are more: adding a score is one class and one name here
