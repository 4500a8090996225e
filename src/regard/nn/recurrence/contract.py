"""A layer that reads its past as one vector, h_t = a_t ⊙ h_{t−1} + b_t: all positions at once, or step by step.

It is called as self-attention is. It has no keys, no mask and no weights; knows no encoder and no vocabulary.
"""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.config import Choice, choice
from regard.errors import RegardError
from regard.nn import dispatch
from regard.nn.cache import KVCache, SegmentMemory, StateTensors
from regard.nn.dispatch import GradientContext
from regard.nn.layout import AttentionContext, Layout
from regard.nn.record import LayerRecord
from regard.nn.sizes import Sizes

H = "h"


@dataclass
class RecurrentState(StateTensors):
    """h [B·K, D] of every row; of tokens that were read together, also the states between."""

    read: Tensor | None = field(default=None, init=False, repr=False)  # [B, T, D], T > 1

    @staticmethod
    def empty(rows: int, size: int, like: Tensor) -> "RecurrentState":
        """Of rows that have read nothing."""
        return RecurrentState({H: like.new_zeros(rows, size, dtype=wide(like.dtype))})

    def rewind(self, position: Tensor) -> None:
        """Every row as it was at an earlier position [B]: 0, or among the tokens that were read together at last."""
        read = self[H][:, None] if self.read is None else self.read
        index = position - self.cache_positions.position + read.shape[1] - 1  # of the state after a row's last token
        if dispatch.on_cpu(index.device) and bool(((index < 0) & (position > 0)).any()):
            super().rewind(position)
        states = read.gather(1, index.clamp(min=0)[:, None, None].expand(-1, 1, read.shape[2]))[:, 0]
        self[H], self.read = states.masked_fill((position == 0)[:, None], 0.0), None


def wide(dtype: torch.dtype) -> torch.dtype:
    """Of a sum over many positions, which needs its digits."""
    return torch.promote_types(dtype, torch.float32)


class Recurrence(nn.Module):
    """The base of the layers. `gates` gives a and b of new inputs, and `read` makes the output of h."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.sizes = Sizes.of(size, 1)

    @abstractmethod
    def gates(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        """a [B, T, D], in 0 … 1, and b [B, T, D] of inputs x, both in float32 or more; None: a is 1."""

    @abstractmethod
    def read(self, x: Tensor, h: Tensor, position: Tensor) -> Tensor:
        """The output [B, T, D] of inputs x, whose past and own part are h; positions are [B or 1, T]."""

    @abstractmethod
    def reset_parameters(self) -> None:
        """Xavier for each of the projections by itself."""

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        context: AttentionContext,
        cache: StateTensors | KVCache | SegmentMemory | None = None,
        record: LayerRecord | None = None,
    ) -> Tensor:
        """x [B, T, D] to the same shape; `memory` is x itself, as self-attention takes it."""
        layout = context.queries
        a, b = self.gates(x)
        a = b.new_ones(1, x.shape[1], 1) if a is None else a
        packed = layout.document is not None or layout.spans is not None
        if packed:  # every sequence of the row begins anew
            a = a * (layout.position != 0)[..., None]
        if isinstance(cache, RecurrentState):
            first = torch.addcmul(b[:, 0], a[:, 0], cache[H])
            b = torch.cat([first[:, None], b[:, 1:]], 1)
        h = linear_scan(a, b, layout.end if packed else x.shape[1])
        if isinstance(cache, RecurrentState):
            cache[H], cache.read = h[:, -1], h if x.shape[1] > 1 else None
        return self.read(x, h, layout.position)

    def empty_cache(self, position: Tensor, length: int, like: Tensor, bounded: bool = True) -> RecurrentState:
        """The state of rows that have read nothing: a vector each, whatever the length."""
        return RecurrentState.empty(len(position), self.sizes.size, like)

    def context(
        self, x: Tensor, mask: Tensor | None = None, cache: StateTensors | KVCache | SegmentMemory | None = None
    ) -> AttentionContext:
        """The context of a call that brings none."""
        if mask is not None or cache is not None:
            raise RegardError(f"{type(self).__name__} reads all of a row's past: it takes no mask, and no cache alone")
        layout = Layout.of(x.shape[1], device=x.device)
        return AttentionContext(layout, layout)


class DecoderSelfConfig(Choice, slot="decoder_self"):
    """The base of all configs of what a decoder layer does with its own past."""

    def build(self, size: int, inner: int, dropout: nn.Module) -> Recurrence | None:
        """The layer for a model of these sizes; None: self-attention, by the choices of `attention`."""
        return None


@choice("attention")
class SelfAttentionConfig(DecoderSelfConfig):
    """Self-attention, by the choices of `attention`."""


# --- the scan ------------------------------------------------------------------------------------------------------


class _ScanContext(GradientContext, Protocol):
    reach: int


def scan_by_loop(a: Tensor, b: Tensor) -> Tensor:
    """h_t = a_t ⊙ h_{t−1} + b_t, h_{−1} = 0, of [B, T, D]: the plain twin of `linear_scan`."""
    h, states = torch.zeros_like(b[:, 0]), []
    for t in range(b.shape[1]):
        h = a[:, t] * h + b[:, t]
        states.append(h)
    return torch.stack(states, 1)


def linear_scan(a: Tensor, b: Tensor, reach: int | None = None) -> Tensor:
    """The same in ⌈log₂ T⌉ passes: no product of a exceeds 1 and nothing is divided, so nothing overflows.

    a is [B or 1, T, D or 1]. `reach` says that no h depends on a b farther back than so many positions.
    """
    h: Tensor = _LinearScan.apply(a, b, min(reach or b.shape[1], b.shape[1]))
    return h


def _scan(a: Tensor, b: Tensor, reach: int) -> Tensor:
    """By doubling: with windows of n positions done, those of 2n are h_t + a_{t−n+1} … a_t h_{t−n} (Hillis 1986)."""
    h, n = b, 1
    while n < reach:
        h = torch.cat([h[:, :n], torch.addcmul(h[:, n:], a[:, n:], h[:, :-n])], 1)
        n *= 2
        if n < reach:
            a = torch.cat([a[:, : n // 2], a[:, n // 2 :] * a[:, : -(n // 2)]], 1)
    return h


class _LinearScan(torch.autograd.Function):
    """Its gradient is the same recurrence, backwards: G_t = g_t + a_{t+1} ⊙ G_{t+1}; db = G, da_t = G_t h_{t−1}."""

    @staticmethod
    def forward(ctx: _ScanContext, a: Tensor, b: Tensor, reach: int) -> Tensor:
        h = _scan(a, b, reach)
        ctx.save_for_backward(a, h)
        ctx.reach = reach
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: _ScanContext, g: Tensor) -> tuple[Tensor | None, Tensor, None]:
        a, h = ctx.saved_tensors
        later = torch.cat([a[:, 1:], torch.zeros_like(a[:, :1])], 1)
        to_b = _scan(later.flip(1), g.flip(1), ctx.reach).flip(1)
        if not ctx.needs_input_grad[0]:
            return None, to_b, None
        before = torch.cat([torch.zeros_like(h[:, :1]), h[:, :-1]], 1)
        return (to_b * before).sum_to_size(a.shape), to_b, None
