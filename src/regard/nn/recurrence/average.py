"""The average attention network: the mean of all inputs so far, a feed-forward network, and a gate."""

import torch
from torch import Tensor, nn

from regard.config import choice, option
from regard.nn.feed_forward import FeedForward, Linear
from regard.nn.recurrence.contract import DecoderSelfConfig, Recurrence, wide


class AverageAttention(Recurrence):
    """g_t = FFN(1/t Σ_{k≤t} x_k); i_t, f_t = σ(W [x_t; g_t] + b); o_t = i_t ⊙ x_t + f_t ⊙ g_t (Zhang 2018, 3.1)."""

    def __init__(self, size: int, inner: int, dropout: float | nn.Module | None = None) -> None:
        super().__init__(size)
        self.network = FeedForward(size, inner, "relu", dropout) if inner else None
        self.gate = Linear(2 * size, 2 * size)
        self.reset_parameters()

    def gates(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        return None, x.to(wide(x.dtype))

    def read(self, x: Tensor, h: Tensor, position: Tensor) -> Tensor:
        g = (h / (position + 1)[..., None]).to(x.dtype)  # [B, T, D]
        g = g if self.network is None else self.network(g)
        i, f = self.gate(torch.cat([x, g], -1)).sigmoid().chunk(2, -1)
        return i * x + f * g

    def reset_parameters(self) -> None:
        if self.network is not None:
            self.network.reset_parameters()
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)


@choice(
    "average",
    "A15",
    "g_t = FFN(1/t Σ_k≤t x_k); i_t, f_t = σ(W [x_t; g_t]); o_t = i_t ⊙ x_t + f_t ⊙ g_t",
    "Zhang 2018, 3.1",
)
class AverageAttentionConfig(DecoderSelfConfig):
    """The mean of all inputs so far instead of weights: a step costs the same at any length."""

    inner: int | None = option(None, "width inside its network; none: as the model's feed-forward; 0: no network")

    def __post_init__(self) -> None:
        if self.inner is not None and self.inner < 0:
            raise ValueError(f"inner must be at least 0, not {self.inner}")

    def build(self, size: int, inner: int, dropout: nn.Module) -> Recurrence:
        return AverageAttention(size, inner if self.inner is None else self.inner, dropout)
