"""Attention with heads: `MultiHeadAttention`, which anybody's model can have, with its projections and caches.

y = MultiHeadAttention(512, 8, position="rotary", pattern="window(64)", causal=True)(x, mask=real)

Names, mappings and objects become the five choices here, and a caller's mask becomes a context; both then go to
`Attention` (`attention.py`). Models make theirs from a config (`build_attention`), in the same way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from regard import config
from regard.config import to_choice
from regard.errors import RegardError
from regard.nn import dispatch
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.backend.contract import split_heads
from regard.nn.cache import BoundedKVCache, CachePositions, CrossKVCache, KVCache, SegmentMemory, SlotRing
from regard.nn.compress import CompressConfig, Compressor
from regard.nn.feed_forward import Linear, linear
from regard.nn.layout import AttentionContext, Layout
from regard.nn.norm import RMSNorm
from regard.nn.normalise import NormaliseConfig, Normaliser
from regard.nn.pattern import PATTERNS, Causal, Document, Full, Padding, Pattern, parse_pattern
from regard.nn.position import Position, PositionConfig
from regard.nn.record import LayerRecord
from regard.nn.score import Score, ScoreConfig
from regard.nn.sizes import Sizes

Choice = str | Mapping[str, object] | config.Choice | nn.Module  # a name, a mapping with a `kind`, a config, a module


class MultiHeadAttention(Attention):
    """Project, split into heads, attend, concatenate, project (Vaswani 2017, 3.2.2).

    score, position, normalise and compress are a name ("rotary"), a mapping ({"kind": "rotary", "base": 5e5}), a config
    object (RotaryConfig(base=5e5)) or a module of one's own; pattern is an expression ("window(64) | global(2)") or a
    Pattern. causal: no query sees a later key. d_k and d_v are sizes of a head, size/heads unless given. `layer` tells
    layers apart where a pattern is random. kv_heads: heads of keys and values, each for several of queries; qk_norm:
    RMSNorm on both. `base_pattern` is for models: what they mask in place of causal and padding.
    """

    query_share = 1.0  # how much of the score's factor the query projection takes (`scale_query`)

    def __init__(
        self,
        size: int,
        heads: int,
        *,
        score: Choice = "scaled_dot",
        position: Choice = "none",
        pattern: str | Pattern = "full",
        normalise: Choice = "softmax",
        compress: Choice = "none",
        causal: bool = False,
        dropout: float = 0.0,
        d_k: int | None = None,
        d_v: int | None = None,
        kv_heads: int | None = None,
        qk_norm: bool = False,
        layer: int = 0,
        base_pattern: Pattern | None = None,
    ) -> None:
        where = type(self).__name__
        try:
            sizes = Sizes.of(size, heads, d_k, d_v, kv_heads)
            if not isinstance(pattern, str | Pattern):
                raise ValueError(f"pattern must be an expression or a Pattern, not {pattern!r}")
            config = AttentionConfig(
                score=_part(ScoreConfig, Score, score, where),
                pattern=pattern,  # type: ignore[arg-type]  # Attention takes a Pattern too
                normalise=_part(NormaliseConfig, Normaliser, normalise, where),
                compress=_part(CompressConfig, Compressor, compress, where),
                dropout=dropout,
                kv_heads=kv_heads,
            )
            if base_pattern is None:
                _check_alone(config, causal)
            role = "decoder" if causal else "encoder"
            position = _position(position, sizes, role, where)
        except ValueError as error:
            raise RegardError(f"{where}: {error}") from None
        visible = Padding() & Document()
        super().__init__(sizes, config, position, base_pattern or (Causal() & visible if causal else visible), layer)
        s, self.heads, self.kv_heads = sizes, heads, sizes.kv_heads
        self.query = Linear(s.size, s.heads * s.d_k)
        self._build_key_value(s)
        self.output = Linear(s.heads * s.d_v, s.size)
        self.query_norm, self.key_norm = (RMSNorm(s.d_k, 1e-6) if qk_norm else None for _ in range(2))
        self.inner_dropout: nn.Module | None = None  # of queries, keys and values; set by the config of a stack
        if base_pattern is None:  # a model gives all its parts their first weights together
            self._check_position()
            self.reset_parameters()
            self.scale_query()

    def _build_key_value(self, s: Sizes) -> None:
        self.key_value = Linear(s.size, s.kv_heads * (s.d_k + s.d_v))  # one product for both: the memory is read once

    def _check_position(self) -> None:
        p = self.position
        if type(p).embed is not Position.embed and not p.acts_in_attention:
            raise RegardError(
                f"{type(self).__name__}: {type(p).__name__.lower()} positions join the word vectors, before any "
                "attention: make them with build_position, apply them to the vectors, and leave position out here"
            )

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        context: AttentionContext | None = None,
        cache: KVCache | CrossKVCache | SegmentMemory | None = None,
        record: LayerRecord | None = None,
        mask: Tensor | None = None,
        return_weights: bool = False,
    ) -> Any:
        """x [B, Q, D] attends to memory [B, K, D], or to itself: [B, Q, D], and the weights [B, H, Q, K] if wanted.

        mask: True where a key may be seen, [B, K] (padding) or [B or 1, H or 1, Q, K]; a query that sees none gets
        zeros. A `context` says the same and more, and layers may share it. A CrossKVCache stands for a memory; a
        SegmentMemory puts what came before x in front of it.
        """
        if context is None:
            context = self.context(x, memory, mask, cache)
        elif mask is not None:
            raise RegardError("a context holds the mask already; give one of the two")
        if return_weights:
            record = record or LayerRecord(keep_graph=True)
            return self.forward(x, memory, context, cache, record), record.weights[-1]
        if isinstance(cache, CrossKVCache) and memory is None:
            q = self._prepared_queries(self._split(self.query(x)), context.queries)  # [B, H, Q, d_k]
            k, v = cache.read()
            return self._join(self.attend(q.to(k.dtype), k, v, context, record).to(x.dtype))
        if isinstance(cache, SegmentMemory):
            memory, cache = cache.extend(x), None
        parts = self.project_qkv(x, x if memory is None else memory)
        if self.inner_dropout is not None:
            dropped = {part: self.inner_dropout(part) for part in dict.fromkeys(parts)}  # what is shared, once
            parts = tuple(dropped[part] for part in parts)
        s, heads = self.sizes, (self.heads, self.kv_heads, self.kv_heads)
        first, second, v = split_heads(parts, heads, s.d_k, s.d_k, s.d_v)
        q = self._prepared_queries(first, context.queries)
        k = self._prepared_keys(second, context.keys if cache is None else context.queries)  # cached: at x
        if not isinstance(cache, KVCache):
            untouched = q is first and k is second and cache is None and self.kv_heads == self.heads
            return self._join(self.attend(q, k, v, context, record, parts if untouched else None))
        shorten = self.shorten if self.shortens else None
        k, v, context = cache.extend(k, v, context, shorten, self.normalise.needs_order or record is not None)
        out = self.attend_prepared(q.to(k.dtype), k, v, context, record).to(x.dtype)
        if cache.counts:
            cache.cache_positions.advance(x.shape[1])
        return self._join(out)

    def context(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        cache: KVCache | CrossKVCache | SegmentMemory | None = None,
    ) -> AttentionContext:
        """The context of a call that brings none: positions from 0, or from where a cache is, and the mask."""
        size = self.sizes.size
        if x.dim() != 3 or x.shape[2] != size:
            raise RegardError(f"x is {list(x.shape)}, and this attention takes [B, N, {size}]")
        if memory is not None and (memory.dim() != 3 or memory.shape[2] != size or len(memory) != len(x)):
            raise RegardError(f"memory is {list(memory.shape)}, and this attention takes [B {len(x)}, N, {size}]")
        rows, queries, _ = x.shape
        if cache is not None and not isinstance(cache, CrossKVCache):
            return cache.context(queries, mask)
        keys = cache.keys.shape[2] if cache is not None else queries if memory is None else memory.shape[1]
        if mask is not None and mask.dim() != 2:
            return AttentionContext.masked(mask, (rows, self.heads, queries, keys))
        own = Layout.of(keys, device=x.device) if mask is None else Layout.masked(mask, rows, keys)
        alone = memory is None and cache is None
        return AttentionContext(own if alone else Layout.of(queries, device=x.device), own)

    def project_qkv(self, x: Tensor, memory: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, side by side in few products [B, N, …]: one for self-attention on a GPU."""
        if x is not memory or not dispatch.usable(x):
            return self.query(x), self.key_value(memory)
        return (linear(x, *self.fused_projection()),)

    def fused_projection(self) -> tuple[Tensor, Tensor]:
        """The weight and the bias that give queries, keys and values of a self-attention, side by side."""
        weights, biases = zip(*((part.weight, part.bias) for part in self._projections()), strict=True)
        return torch.cat(weights), torch.cat(biases)

    def _projections(self) -> list[nn.Linear]:
        return [self.query, self.key_value]

    def project_kv(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory [B, K, D]: [B, H, K, d_k] and [B, H, K, d_v]."""
        k, v = split_heads((self.key_value(memory),), self.kv_heads, self.sizes.d_k, self.sizes.d_v)
        return k, v

    def _prepared_queries(self, q: Tensor, layout: Layout) -> Tensor:
        """Queries [B, H, Q, d_k] as the score takes them: normalised if that was chosen, and at their positions."""
        position = self.position
        return position.query(position.rotate(q if self.query_norm is None else self.query_norm(q), layout))

    def _prepared_keys(self, k: Tensor, layout: Layout) -> Tensor:
        """Keys [B, kv_heads, K, d_k] as the score and a cache take them: normalised, at their positions, prepared."""
        return self.prepare_keys(self.position.rotate(k if self.key_norm is None else self.key_norm(k), layout))

    def unfused_step_reason(self) -> str | None:
        """Why the projections need more than the fused step of decoding computes; None: they do not."""
        return None if self.query_norm is None else "queries and keys are normalised"

    def _join(self, out: Tensor) -> Tensor:
        return self.output(out.transpose(1, 2).flatten(2))  # [B, H, Q, d_v] -> [B, Q, D]

    def new_cache(self, rows: int, length: int) -> KVCache:
        """An empty cache for `length` positions of so many rows, which counts them: `attention(x, cache=cache)`."""
        if Causal() not in self.pattern.parts():
            raise RegardError("a KV cache holds the past alone, so the attention must be causal (causal=True)")
        like = self.query.weight
        position = torch.zeros(rows, dtype=torch.long, device=like.device)
        cache = self.empty_cache(position, length, like)
        cache.cache_positions, cache.counts = CachePositions(position, length), True
        return cache

    def empty_cache(self, position: Tensor, length: int, like: Tensor, bounded: bool = True) -> KVCache:
        """Storage for the keys and values of `length` positions a row; bounded: of those that may still be seen."""
        s, rows, has_weights = self.sizes, len(position), self._has_weights()
        retention = self.pattern.retention
        if bounded and (self.shortens or retention is not None):
            sizes = self.score.key_size, s.d_v, s.d_k, s.d_v
            ring = SlotRing.of(retention, length, self.compress.stride)
            return BoundedKVCache.build(ring, rows, self.kv_heads, sizes, like, has_weights)
        d_k = s.d_k if self.shortens else self.score.key_size  # as `prepare_keys` leaves them
        return KVCache.empty(rows, self.kv_heads, length, d_k, s.d_v, like, has_weights)

    def cross_cache(self, memory: Tensor) -> CrossKVCache:
        """The keys and values of a memory that does not change."""
        k, v = self.project_kv(memory)
        k = self._prepared_keys(k, Layout.of(memory.shape[1], device=memory.device))
        return CrossKVCache.of(k, v, self._has_weights())

    def _has_weights(self) -> bool:
        """Whether a choice multiplies queries or keys with weights of its own."""
        parts = (self.score, self.compress, self.learned, *([self.position] if self.position.biases else []))
        return any(next(part.parameters(), None) is not None for part in parts)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, N, H·d] -> [B, H, N, d]

    def reset_parameters(self) -> None:
        """Xavier for each of the projections by itself, however many share one matrix."""
        s = self.sizes
        for layer in (self.query, self.key_value, self.output):
            both = layer is self.key_value and layer.out_features == s.kv_heads * (s.d_k + s.d_v)
            for part in layer.weight.split([s.kv_heads * s.d_k, s.kv_heads * s.d_v] if both else layer.out_features):
                nn.init.xavier_uniform_(part)
            nn.init.zeros_(layer.bias)

    def scale_query(self) -> None:
        """The factor that a score asks of the query projection when weights begin (S7)."""
        if self.score.query_gain != 1.0:
            with torch.no_grad():
                self.query.weight.mul_(self.score.query_gain**self.query_share)


class SharedQueryKey(MultiHeadAttention):
    """One matrix for queries and keys: the scores are then symmetric (B2)."""

    query_share = 0.5  # one matrix makes queries and keys: half the factor each

    def _build_key_value(self, s: Sizes) -> None:
        self.key_value = Linear(s.size, s.heads * s.d_v)  # values alone

    def project_qkv(self, x: Tensor, memory: Tensor) -> tuple[Tensor, ...]:
        q = self.query(x)
        return q, (q if x is memory else self.query(memory)), self.key_value(memory)

    def _projections(self) -> list[nn.Linear]:
        return [self.query, self.query, self.key_value]

    def project_kv(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        return self._split(self.query(memory)), self._split(self.key_value(memory))


def build_attention(
    config: AttentionConfig,
    size: int,
    heads: int,
    position: Position,
    base_pattern: Pattern,
    layer: int = 0,
    compress: Compressor | None = None,
) -> MultiHeadAttention:
    """The attention of one layer of a model; `compress` is a compressor that layers share."""
    c = config.layer(layer)
    kind = {"separate": MultiHeadAttention, "shared": SharedQueryKey}[config.projection]
    return kind(
        size,
        config.heads or heads,
        score=c.score,
        position=position,
        pattern=c.pattern,
        normalise=c.normalise,
        compress=compress or c.compress,
        dropout=config.dropout,
        d_k=config.d_k,
        d_v=config.d_v,
        kv_heads=config.kv_heads,
        qk_norm=config.qk_norm,
        layer=layer,
        base_pattern=base_pattern,
    )


# --- choices ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Built:
    """A part that is built already, where a config would build one."""

    part: nn.Module
    kind: str = "a module"

    @property
    def keeps_order(self) -> bool:
        return getattr(self.part, "keeps_order", True)

    def build(self, *sizes: object) -> nn.Module:
        return self.part


def _part(slot: type[config.Choice], kind: type[nn.Module], chosen: Choice, where: str) -> Any:
    """The config of a part, or the part itself as one."""
    if isinstance(chosen, kind):
        return _Built(chosen)
    if not isinstance(chosen, str | Mapping | slot):
        what = f"a name, a mapping, a {slot.__name__} or a {kind.__name__}"
        raise ValueError(f"{slot.slot} must be {what}, not {chosen!r}")
    return to_choice(slot, chosen, where, slot.slot)


def build_position(chosen: Choice, size: int, heads: int = 1, causal: bool = False) -> Position:
    """A position module: `build_position("sinusoidal", 512)(x)` puts positions into word vectors x [B, T, D].

    One module may serve several attentions, as `position=module` of each, which then share its weights.
    """
    try:
        return _position(chosen, Sizes.of(size, heads), "decoder" if causal else "encoder", "build_position")
    except ValueError as error:
        raise RegardError(f"build_position: {error}") from None


def _position(chosen: Choice, sizes: Sizes, role: str, where: str) -> Position:
    if isinstance(chosen, Position):
        return chosen
    config = _part(PositionConfig, Position, chosen, where)
    if role not in config.roles:
        raise ValueError(f"{config.kind} positions belong to the {config.roles[0]}, not to a causal attention")
    config.check(sizes)
    return config.build(sizes, role)


def _check_alone(config: AttentionConfig, causal: bool) -> None:
    """Raise ValueError where an attention in no model, whose inputs may have any length, cannot have these choices."""
    c = config.layer(0)
    pattern = parse_pattern(c.pattern, PATTERNS)
    if causal and "decoder" not in pattern.roles:
        raise ValueError(f"the pattern {c.pattern!r} is for attention to a memory, which is not causal")
    if not c.compress.keeps_order and (causal or pattern != Full()):
        raise ValueError(f"{c.compress.kind} mixes all positions, so neither causal nor a pattern can hide any")
