"""Layers of a Transformer: attention and feed-forward, each inside a residual connection.

A layer receives its parts: `EncoderLayer(MultiHeadAttention(512, 8), FeedForward(512, 2048), "pre_norm")`. Residual
connections are objects, no flag. Knows no vocabulary and no batch.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from torch import Tensor, nn

from regard.config import lookup
from regard.nn.cache import CrossKVCache, KVCache, SegmentMemory, StateTensors
from regard.nn.dropout import Dropout, add_dropout
from regard.nn.feed_forward import FeedForward
from regard.nn.layout import AttentionContext
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.norm import NORMS, add_norm, norm_beside
from regard.nn.record import LayerRecord
from regard.nn.recurrence import Recurrence

M = TypeVar("M", bound=nn.Module)


class ModuleList(nn.ModuleList, Generic[M]):
    """A `torch.nn.ModuleList` whose modules have a type, for type checkers."""

    if TYPE_CHECKING:

        def __init__(self, modules: Iterable[M]) -> None: ...

        def __iter__(self) -> Iterator[M]: ...

        @overload
        def __getitem__(self, index: slice) -> "ModuleList[M]": ...

        @overload
        def __getitem__(self, index: int) -> M: ...

        def __getitem__(self, index: int | slice) -> "M | ModuleList[M]": ...


# --- residual connections ------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """A connection around a sub-layer; `norm` and `dropout` are its own."""

    needs_final_norm = False  # whether the stack needs one norm more at its end

    def __init__(self, norm: nn.Module, dropout: Dropout) -> None:
        super().__init__()
        self.norm, self.dropout = norm, dropout


class PostNorm(Residual):
    """norm(x + dropout(f(x))) (Vaswani 2017, 3.1)."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        return add_norm(x, sublayer(x), self.norm, self.dropout, real)


class PreNorm(Residual):
    """x + dropout(f(norm(x))): the way through is never normalised, so the stack needs one norm at its end."""

    needs_final_norm = True

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        normal, x = norm_beside(x, self.norm, real)
        return add_dropout(x, sublayer(normal), self.dropout)


class NoResidual(Residual):
    """norm(dropout(f(x))): nothing passes by the sub-layer; for the comparison."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        return self.norm(self.dropout(sublayer(x)), real)


RESIDUALS: dict[str, type[Residual]] = {"post_norm": PostNorm, "pre_norm": PreNorm, "none": NoResidual}


# --- layers --------------------------------------------------------------------------------------------------------


class _Layer(nn.Module):
    is_layer = True  # a unit of sharding (FSDP2)
    residuals: nn.ModuleList

    def _build_residuals(
        self, chosen: str | Sequence[nn.Module], sublayers: int, size: int, dropout: float, norm: str
    ) -> nn.ModuleList:
        if not isinstance(chosen, str):
            return nn.ModuleList(chosen)
        where = f"{type(self).__name__}:"
        residual, own_norm = lookup(RESIDUALS, chosen, f"{where} residual"), lookup(NORMS, norm, f"{where} norm")
        return nn.ModuleList(residual(own_norm(size, 1e-5, True, True), Dropout(dropout)) for _ in range(sublayers))


class EncoderLayer(_Layer):
    """Self-attention, then feed-forward, each inside its residual. With causal attention, or a recurrence in its place,
    a layer of GPT.

    residual: `post_norm`, `pre_norm` or `none`, or the residual modules themselves, one for each sub-layer. `dropout`
    and `norm` (`layer`, `rms`, `batch` or `none`) are theirs. feed_forward None: attention alone.
    """

    def __init__(
        self,
        attention: MultiHeadAttention | Recurrence,
        feed_forward: FeedForward | None = None,
        residual: str | Sequence[nn.Module] = "post_norm",
        dropout: float = 0.1,
        norm: str = "layer",
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.residuals = self._build_residuals(
            residual, 1 + (feed_forward is not None), attention.sizes.size, dropout, norm
        )

    def forward(
        self,
        x: Tensor,
        context: AttentionContext | None = None,
        record: LayerRecord | None = None,
        cache: KVCache | StateTensors | SegmentMemory | None = None,
        mask: Tensor | None = None,
    ) -> Tensor:
        """x [B, T, D] to the same shape; `mask` and `cache` as MultiHeadAttention has them."""
        context = context or _self_context(self.attention, x, mask, cache)
        real = context.queries.real
        x = _enter(self.attention, x, context)
        x = self.residuals[0](x, lambda y: self.attention(y, y, context, cache, record), real)
        return x if self.feed_forward is None else self.residuals[1](x, self.feed_forward, real)


class DecoderLayer(_Layer):
    """Causal self-attention, or a recurrence, cross-attention to a memory, feed-forward; options as EncoderLayer's."""

    def __init__(
        self,
        attention: MultiHeadAttention | Recurrence,
        cross: MultiHeadAttention,
        feed_forward: FeedForward | None = None,
        residual: str | Sequence[nn.Module] = "post_norm",
        dropout: float = 0.1,
        norm: str = "layer",
    ) -> None:
        super().__init__()
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward
        self.residuals = self._build_residuals(
            residual, 2 + (feed_forward is not None), attention.sizes.size, dropout, norm
        )

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        self_context: AttentionContext | None = None,
        cross_context: AttentionContext | None = None,
        caches: tuple[KVCache | StateTensors, CrossKVCache] | None = None,
        records: tuple[LayerRecord | None, LayerRecord | None] = (None, None),
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """x [B, T, D] and memory [B, S, D] to [B, T, D]. memory None: the cross KV cache holds its keys already."""
        past, source = caches or (None, None)
        self_context = self_context or _self_context(self.attention, x, mask, past)
        cross_context = cross_context or self.cross.context(x, memory, memory_mask, source)
        real = self_context.queries.real
        x = _enter(self.attention, x, self_context)
        x = self.residuals[0](x, lambda y: self.attention(y, y, self_context, past, records[0]), real)
        x = self.residuals[1](x, lambda y: self.cross(y, memory, cross_context, source, records[1]), real)
        return x if self.feed_forward is None else self.residuals[2](x, self.feed_forward, real)

    def caches(
        self, memory: Tensor, position: Tensor, length: int, bounded: bool = True
    ) -> tuple[KVCache | StateTensors, CrossKVCache]:
        """An empty cache for `length` tokens (`empty_cache`), and the cross KV cache of the source."""
        return self.attention.empty_cache(position, length, memory, bounded), self.cross.cross_cache(memory)


def _self_context(
    layer: MultiHeadAttention | Recurrence,
    x: Tensor,
    mask: Tensor | None,
    cache: KVCache | StateTensors | SegmentMemory | None,
) -> AttentionContext:
    """The context of a call that brings none."""
    if isinstance(layer, Recurrence):
        return layer.context(x, mask, cache)
    assert not isinstance(cache, StateTensors)
    return layer.context(x, mask=mask, cache=cache)


def _enter(layer: MultiHeadAttention | Recurrence, x: Tensor, context: AttentionContext) -> Tensor:
    """The input of the layer, with positions that join every layer's."""
    return x if isinstance(layer, Recurrence) else layer.position.enter(x, context.queries)
