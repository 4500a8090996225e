"""Attention: one plain function to quote, and the multi-head layer that composes the five choices around it.

score, position, pattern, compress and normalise are objects; a hook that a choice does not need is identity, so the
layer always calls all of them. Which kernel computes the result is `nn/backend.py`'s business.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import option
from regard.nn import backend
from regard.nn.cache import Cache
from regard.nn.compress import CompressConfig
from regard.nn.layout import Call
from regard.nn.normalise import NormaliseConfig
from regard.nn.pattern import Pattern
from regard.nn.position import Position
from regard.nn.score import ScoreConfig


def attention(
    q: Tensor,  # [B, H, Q, d_k]
    k: Tensor,  # [B, H, K, d_k]
    v: Tensor,  # [B, H, K, d_v]
    score: Callable[[Tensor, Tensor], Tensor],
    normalise: Callable[[Tensor, Tensor | None], Tensor],
    allow: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax(qᵀk / √d_k) v, with every part exchangeable. Gives the output [B, H, Q, d_v] and the weights."""
    scores = score(q, k)  # [B, H, Q, K]
    if bias is not None:
        scores = scores + bias
    weights = normalise(scores, allow)
    return weights @ v, weights


@dataclass(frozen=True)
class AttentionConfig:
    """The choices of one attention; its pattern is given by where it stands."""

    score: ScoreConfig = option(ScoreConfig, "how alike are a query and a key")
    normalise: NormaliseConfig = option(NormaliseConfig, "how scores become weights")
    compress: CompressConfig = option(CompressConfig, "how keys and values are shortened")
    dropout: float = option(0.0, "dropout on the weights; the paper has none")

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {self.dropout}")

    def build(
        self, size: int, heads: int, position: Position, pattern: Pattern, layer: int = 0
    ) -> "MultiHeadAttention":
        return MultiHeadAttention(size, heads, self, position, pattern, layer)


class MultiHeadAttention(nn.Module):
    """Project, split into heads, attend, concatenate, project (Vaswani 2017, 3.2.2)."""

    def __init__(
        self, size: int, heads: int, config: AttentionConfig, position: Position, pattern: Pattern, layer: int = 0
    ) -> None:
        super().__init__()
        if size % heads:
            raise ValueError(f"{heads} heads do not divide the size {size}")
        self.heads, self.d_k = heads, size // heads
        self.query = nn.Linear(size, size)
        self.key_value = nn.Linear(size, 2 * size)  # one product for both: the memory is read once
        self.output = nn.Linear(size, size)
        self.score = config.score.build(self.d_k)
        self.normalise = config.normalise.build()
        self.compress = config.compress.build()
        self.position, self.pattern, self.layer = position, pattern, layer
        self.dropout = config.dropout

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        call: Call,
        cache: Cache | None = None,
        record: list[Tensor] | None = None,
    ) -> Tensor:
        """x [B, Q, D] asks memory [B, K, D]; memory None means that the cache holds all the keys already."""
        q = self.position.rotate(self._split(self.query(x)), call.queries)  # [B, H, Q, d]
        if memory is None:
            assert cache is not None
            k, v = cache.read()
        else:
            k, v = self.project(memory)
            k = self.position.rotate(k, call.queries if cache is not None else call.keys)  # new keys stand where x does
            if cache is not None:
                k, v = cache.append(k, v)
        k, v, keys = self.compress(k, v, call.keys)
        if keys is not call.keys:
            call = Call(call.queries, keys)
        out = self._attend(q, k, v, call, record)
        return self.output(out.transpose(1, 2).flatten(2))  # [B, Q, D]

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory [B, K, D]: [B, H, K, d_k] and [B, H, K, d_v]."""
        k, v = self._split(self.key_value(memory)).chunk(2, dim=1)
        return k, v

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, call: Call, record: list[Tensor] | None) -> Tensor:
        """By the fastest backend that serves these choices; recording is done beside it and changes nothing."""
        pattern = self.pattern.bind(q, self.layer)
        bias = self.position.bias(q, call)
        if record is not None:
            record.append(self.reference(q, k, v, call, pattern, bias)[1])
        if backend.serves_sdpa(self, pattern, call):
            return backend.sdpa(self, q, k, v, call, pattern, bias)
        return self.reference(q, k, v, call, pattern, bias)[0]

    def reference(
        self, q: Tensor, k: Tensor, v: Tensor, call: Call, pattern: Pattern, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The plain path: output [B, H, Q, d_v] and weights [B, H, Q, K]."""
        out, weights = attention(q, k, v, self.score, self.normalise, pattern.mask(call, self.heads), bias)
        gain = pattern.gain(call)
        if gain is not None:
            weights = weights * gain
        if gain is not None or (self.dropout and self.training):
            out = F.dropout(weights, self.dropout, self.training) @ v
        mixed = self.position.mix(weights, call)
        return (out if mixed is None else out + mixed), weights

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.d_k)).transpose(1, 2)  # [B, N, n·d] -> [B, n, N, d]

    def reset_parameters(self) -> None:
        """Xavier for each of the projections by itself, however many share one matrix."""
        with torch.no_grad():
            for linear in (self.query, self.key_value, self.output):
                for part in linear.weight.split(self.query.weight.shape[0]):
                    nn.init.xavier_uniform_(part)
                nn.init.zeros_(linear.bias)
