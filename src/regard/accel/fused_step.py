"""The fused step of decoding: T more tokens of every row, with all that stays from step to step looked up once.

A step of a small model is mostly the host's time, so here are few calls: one product for queries, keys and values, one
mask for all layers, no choice of kernels. The plain twin is a model's own `step`. It serves whatever is not known here:
several tokens of several beams at once, and recorded weights; so do layers, one by one, whose attention has rarer
choices.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.accel.inference_weights import OneDnnLinear
from regard.accel.int8.linear import Int8Linear
from regard.accel.norm import add_norm_without_gradient
from regard.models.batch import PairBatch
from regard.models.decoders.pairs import DecoderOnly
from regard.models.lm import LanguageModel
from regard.models.stack import embed_positions
from regard.models.state import DecoderState
from regard.models.transformer import DecoderLayer, Transformer
from regard.nn import dispatch
from regard.nn.backend.contract import nonstandard_reason
from regard.nn.cache import CrossKVCache, KVCache, StateTensors
from regard.nn.embedding import Embedding
from regard.nn.feed_forward import FeedForward
from regard.nn.layers import EncoderLayer, ModuleList, NoResidual, PostNorm, PreNorm
from regard.nn.layout import AttentionContext, Layout
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.norm import LayerNorm, NoNorm
from regard.nn.pattern import Causal
from regard.nn.position import Position
from regard.nn.record import AttentionRecorder
from regard.nn.recurrence import SSRU, AverageAttention, Recurrence
from regard.nn.recurrence.contract import H, wide
from regard.nn.score import Score

Function = Callable[[Tensor], Tensor]
FusedSublayer = Callable[[Tensor, Any, Any], Tensor]  # (x, context, cache)
MASKED = -1e30  # added to a score, this leaves exactly nothing of its weight, in any precision


class FusedStep:
    """A model of such layers that decodes. They are sub-layers in the order of the state's caches."""

    def __init__(
        self,
        model: Transformer | LanguageModel,
        embedding: Embedding,
        positions: ModuleList[Position],
        layers: Iterable[EncoderLayer | DecoderLayer],
        norm: nn.Module,
    ) -> None:
        self.model, self.longest = model, model.longest
        self.start: Callable[..., DecoderState] = model.start
        if isinstance(model, Transformer):
            self.start = partial(model.start, encode=FusedEncoder(model))
        self.embedding, self.positions = embedding, positions
        self.layers = [FusedLayer(layer) for layer in layers]
        self.recurrent = any(isinstance(layer.attention, Recurrence) for layer in layers)
        self.norm, self.output, self.proposals = _norm(norm), model.output.forward, model.proposals

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """As the model's own."""
        states, state = self.read(tokens, state)
        return self.output(states), state

    def read(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """As the model's own."""
        steps = tokens.shape[1]
        if (steps > 1 and (state.cache_positions.beams > 1 or self.recurrent)) or state.record or self.model.training:
            return self.model.read(tokens, state)
        context = StepContext(state, steps)
        x = F.embedding(tokens, self.embedding.weight)  # [N, T, D]
        x = x if self.embedding.factor == 1 else x * self.embedding.factor
        x = embed_positions(self.positions, x, context.queries).flatten(0, 1)  # [N·T, D]
        for layer, caches in zip(self.layers, state.layers, strict=True):
            x = layer(x, context, caches)
        state.advance(steps)
        return self.norm(x).unflatten(0, (-1, steps)), state

    def first_layers(self, count: int) -> "FusedStep":
        """The model of its first layers, with the same weights."""
        return cast(FusedStep, fused(self.model.first_layers(count)))


def fused(model: Any) -> Any:
    """The model with fused steps, where it is made of attention layers or recurrences; else the model itself."""
    if isinstance(model, Transformer):
        return FusedStep(model, model.target_embedding, model.decoder_position, model.decoder, model.decoder_norm)
    if isinstance(model, LanguageModel):
        return FusedStep(model, model.embedding, model.position, model.layers, model.norm)
    if isinstance(model, DecoderOnly):
        steps = fused(model.body)
        steps.start = model.start
        return steps
    return model.fused() if hasattr(model, "fused") else model


class StepContext:
    """What all layers of a step share."""

    def __init__(self, state: DecoderState, steps: int) -> None:
        self.state, self.positions, self.steps = state, state.cache_positions, steps
        self.reach = self.positions.read_length(steps)
        self.queries: Layout = self.positions.next_layout(steps)  # [N, T]
        self.shape = len(self.positions.position), steps
        self.biases: dict[str, Tensor | None] = {}

    @cached_property
    def own(self) -> AttentionContext:
        return self.state.self_context(self.steps)

    @cached_property
    def cross(self) -> AttentionContext:
        return self.state.cross_context(self.steps)

    def _past_mask(self) -> Tensor | None:
        """Which slots each row may see [B, 1, K or T, slots]; None: all."""
        positions = self.positions
        if positions.history is not None:
            return positions.visible_slots(1, self.reach)[:, None]
        if positions.aligned and self.steps == 1:
            return None
        slots = torch.arange(self.reach, device=positions.position.device)
        return (slots <= self.queries.position[..., None])[:, None]

    def _source_mask(self) -> Tensor | None:
        """Which positions of the source are real [B, 1, 1, S]; None: all."""
        real = self.state.source_real
        return None if real is None else real[:, None, None]

    def bias(self, name: Literal["past", "source"], q: Tensor) -> Tensor | None:
        """The addend of a mask to the scores of queries [B, G, h·K·T, d], as `attend` takes it; made once a step."""
        if name not in self.biases:
            mask = self._past_mask() if name == "past" else self._source_mask()
            if mask is not None and mask.shape[2] > 1:  # [B, 1, K or T, slots]: every head of a group sees the same
                mask = mask.repeat(1, 1, q.shape[2] // mask.shape[2], 1)
            make = _bias_by_head if dispatch.on_cpu(q.device) else _bias
            self.biases[name] = None if mask is None else make(mask, q)
        return self.biases[name]


# --- attention -----------------------------------------------------------------------------------------------------


def _bias(mask: Tensor, q: Tensor) -> Tensor:
    """[B, 1, h·K·T or 1, slots]"""
    return torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill_(~mask, MASKED)


def _bias_by_head(mask: Tensor, q: Tensor) -> Tensor:
    """[B·G, h·K·T, slots]"""
    return _bias(mask, q).expand(*q.shape[:3], -1).flatten(0, 1)


def _two_products(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """softmax(scale · qᵀk + bias) v in two products: with so few queries, torch's fused kernel takes twice as long."""
    (b, h, n, _), flat = q.shape, q.flatten(0, 1)
    added = q.new_empty(1, 1, 1) if bias is None else bias
    scores = torch.baddbmm(added, flat, k.flatten(0, 1).mT, beta=0 if bias is None else 1, alpha=scale)  # [B·H, K, N]
    return torch.bmm(scores.softmax(-1), v.flatten(0, 1)).view(b, h, n, -1)


def _sdpa(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, bias, scale=scale, enable_gqa=q.shape[1] != k.shape[1])


class _FusedAttention:
    def __init__(self, layer: MultiHeadAttention) -> None:
        assert layer.score.scale is not None
        self.layer, self.scale = layer, layer.score.scale
        self.heads, self.kv_heads = layer.heads, layer.kv_heads
        self.output = _linear(layer.output)
        self.rotates = layer.position.rotates
        self.prepares_keys = type(layer.score).keys is not Score.keys

    def rotate(self, x: Tensor, queries: Layout) -> Tensor:
        return self.layer.position.rotate(x, queries) if self.rotates else x

    def keys(self, k: Tensor) -> Tensor:
        return self.layer.score.keys(k) if self.prepares_keys else k

    def split(self, x: Tensor, heads: int, steps: int) -> Tensor:
        """[N·T, H·d] -> [N, H, T, d]"""
        if steps == 1:
            return x.view(len(x), heads, 1, -1)
        return x.view(-1, steps, heads, x.shape[-1] // heads).transpose(1, 2)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Literal["past", "source"], context: StepContext, dtype: torch.dtype
    ) -> Tensor:
        """Queries [N, H, T, d] over keys [B, kv_heads, slots, d] and values: [N·T, D].

        What shares keys stands side by side, as so many queries of theirs: heads h of a group, and of each its K beams,
        or the T tokens of the only one.
        """
        groups, shared = self.kv_heads, self.heads // self.kv_heads
        if context.steps == 1:
            q = q.view(len(k), -1, groups, shared, q.shape[-1]).permute(0, 2, 3, 1, 4)  # [B, G, h, K, d]
        else:
            q = q.unflatten(1, (groups, shared))  # [B, G, h, T, d]
        beams, q = q.shape[3], q.flatten(2, 3)  # [B, G, h·(K or T), d]
        attend = _two_products if dispatch.on_cpu(q.device) else _sdpa
        out = attend(q, k, v, context.bias(mask, q), self.scale).unflatten(2, (shared, beams))
        return self.output(out.permute(0, 3, 1, 2, 4).reshape(len(k) * beams, -1).to(dtype))


class FusedSelfAttention(_FusedAttention):
    """Self-attention of the next token, over its row's cache."""

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__(layer)
        s = layer.sizes
        self.product = _like(layer.query, *layer.fused_projection())
        self.widths = [s.heads * s.d_k, s.kv_heads * s.d_k, s.kv_heads * s.d_v]

    def __call__(self, x: Tensor, context: Any, cache: Any) -> Tensor:
        qkv = self.product(x).to(cache.keys.dtype)  # [N, H·d_k + kv_heads·(d_k + d_v)]
        parts = torch.split_with_sizes(qkv, self.widths, -1)
        heads = (self.heads, self.kv_heads, self.kv_heads)
        q, k, v = (self.split(part, h, context.steps) for part, h in zip(parts, heads, strict=True))
        q, k = self.rotate(q, context.queries), self.rotate(k, context.queries)
        k, v = cache.append(self.keys(k), v, context.reach)
        return self.attend(q, k, v, "past", context, x.dtype)


class FusedCrossAttention(_FusedAttention):
    """Cross-attention of the next token, over the keys and values of its source."""

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__(layer)
        self.query = _linear(layer.query)

    def __call__(self, x: Tensor, context: StepContext, cache: CrossKVCache) -> Tensor:
        q = self.rotate(self.split(self.query(x).to(cache.keys.dtype), self.heads, context.steps), context.queries)
        return self.attend(q, cache.keys, cache.values, "source", context, x.dtype)


class FusedSSRU:
    """An SSRU's step: one product for its gate and its value."""

    def __init__(self, layer: SSRU) -> None:
        weight = torch.cat([layer.forget.weight, layer.value.weight])
        self.product = _like(layer.forget, weight, torch.cat([layer.forget.bias, torch.zeros_like(layer.forget.bias)]))

    def __call__(self, x: Tensor, context: StepContext, cache: StateTensors) -> Tensor:
        f, value = self.product(x).to(wide(x.dtype)).chunk(2, -1)
        cache[H] = torch.lerp(value, cache[H], f.sigmoid())  # f ⊙ c + (1 − f) ⊙ value
        return cache[H].relu().to(x.dtype)


class FusedAverage:
    """A step of average attention: a sum, the network, and the gates in one product."""

    def __init__(self, layer: AverageAttention) -> None:
        self.network = None if layer.network is None else _feed_forward(layer.network)
        self.gate = _linear(layer.gate)

    def __call__(self, x: Tensor, context: StepContext, cache: StateTensors) -> Tensor:
        cache[H] = cache[H] + x
        g = (cache[H] / (context.queries.position + 1)).to(x.dtype)
        g = g if self.network is None else self.network(g)
        i, f = self.gate(torch.cat([x, g], -1)).sigmoid().chunk(2, -1)
        return i * x + f * g


def _unfused_reason(layer: MultiHeadAttention) -> str | None:
    return nonstandard_reason(layer) or layer.unfused_step_reason()


def _self_attention(layer: MultiHeadAttention | Recurrence) -> FusedSublayer:
    def plain(x: Tensor, context: StepContext, cache: KVCache) -> Tensor:
        rows = x.unflatten(0, (-1, context.steps))  # [N, T, D]
        return layer(rows, rows, context.own, cache).flatten(0, 1)

    if isinstance(layer, Recurrence):
        known: dict[type, Callable[..., FusedSublayer]] = {SSRU: FusedSSRU, AverageAttention: FusedAverage}
        return known[type(layer)](layer) if type(layer) in known else plain
    return plain if _unfused_reason(layer) else FusedSelfAttention(layer)


def _cross_attention(layer: MultiHeadAttention) -> FusedSublayer:
    def plain(x: Tensor, context: StepContext, cache: CrossKVCache) -> Tensor:
        return layer(x.unflatten(0, (-1, context.steps)), None, context.cross, cache).flatten(0, 1)

    return plain if _unfused_reason(layer) else FusedCrossAttention(layer)


# --- the encoder ---------------------------------------------------------------------------------------------------


class FusedEncoderAttention(FusedSelfAttention):
    """Self-attention within sources [B·S, D]."""

    def __call__(self, x: Tensor, context: "EncoderContext", cache: None) -> Tensor:
        parts, heads = self.product(x).split(self.widths, -1), (self.heads, self.kv_heads, self.kv_heads)
        q, k, v = (p.view(*context.shape, h, -1).transpose(1, 2) for p, h in zip(parts, heads, strict=True))
        q, k = self.rotate(q, context.queries), self.rotate(k, context.queries)  # [B, H, S, d]
        out = _sdpa(q, self.keys(k), v, context.mask, self.scale)
        return self.output(out.transpose(1, 2).reshape(len(x), -1))


class EncoderContext:
    """What all layers of an encoder share."""

    def __init__(self, batch: PairBatch) -> None:
        self.shape, real = batch.source.shape, batch.source_real
        self.queries = Layout.of(self.shape[1], real, batch.device)
        self.mask = None if real is None else real[:, None, None]  # [B, 1, 1, S]


class FusedEncoder:
    """`model.encode` in few calls; a CPU reads the few requests of a refill in half the time."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.layers: list[FusedLayer] = []
        layers = list(model.encoder)
        attentions = [each.attention for each in layers if isinstance(each.attention, MultiHeadAttention)]
        if not any(_unfused_reason(each) or Causal() in each.pattern.parts() for each in attentions):
            parts = [FusedEncoderAttention(attention) for attention in attentions]
            self.layers = [FusedLayer(layer, [part]) for layer, part in zip(layers, parts, strict=True)]
        self.norm = _norm(model.encoder_norm)

    def __call__(self, batch: PairBatch, record: AttentionRecorder | None = None) -> tuple[Tensor, Layout]:
        model = self.model
        if not self.layers or record is not None or batch.tree or not dispatch.on_cpu(batch.device) or model.training:
            return model.encode(batch, record)
        context = EncoderContext(batch)
        x = embed_positions(model.encoder_position, model.source_embedding(batch.source), context.queries)
        x = x.flatten(0, 1)  # [B·S, D]
        for layer in self.layers:
            x = layer(x, context, (None,))
        return self.norm(x).unflatten(0, context.shape), context.queries


# --- the rest of a layer -------------------------------------------------------------------------------------------


class FusedLayer:
    def __init__(self, layer: EncoderLayer | DecoderLayer, attentions: Sequence[FusedSublayer] = ()) -> None:
        own = layer.attention
        self.attentions = attentions or [_self_attention(own)]
        self.position = own.position if isinstance(own, MultiHeadAttention) and own.position.joins_layers else None
        if isinstance(layer, DecoderLayer):
            self.attentions = [*self.attentions, _cross_attention(layer.cross)]
        self.residuals = [_residual(residual) for residual in layer.residuals]
        self.feed_forward = None if layer.feed_forward is None else _feed_forward(layer.feed_forward)

    def __call__(self, x: Tensor, context: "StepContext | EncoderContext", caches: Sequence[Any]) -> Tensor:
        if self.position is not None:
            x = self.position.enter(x.unflatten(0, context.shape), context.queries).flatten(0, 1)
        for residual, attention, cache in zip(self.residuals, self.attentions, caches, strict=False):
            x = residual(x, lambda y, attention=attention, cache=cache: attention(y, context, cache))  # type: ignore[misc]
        return x if self.feed_forward is None else self.residuals[-1](x, self.feed_forward)


def _residual(residual: Any) -> Callable[[Tensor, Function], Tensor]:
    layer_norm, norm = residual.norm, _norm(residual.norm)
    if isinstance(residual, PostNorm) and isinstance(layer_norm, LayerNorm) and dispatch.available(layer_norm.weight):
        return lambda x, f: add_norm_without_gradient(x, f(x), layer_norm)
    residuals: dict[type, Callable[[Tensor, Function], Tensor]] = {
        PostNorm: lambda x, f: norm(x + f(x)),
        PreNorm: lambda x, f: x + f(norm(x)),
        NoResidual: lambda x, f: norm(f(x)),
    }
    return residuals[type(residual)]


def _norm(norm: nn.Module) -> Function:
    if isinstance(norm, NoNorm):
        return lambda x: x
    if not isinstance(norm, LayerNorm):
        return norm.forward
    shape, weight, bias, epsilon = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)


def _feed_forward(network: FeedForward) -> Function:
    if type(network) is not FeedForward:
        return network.forward
    expand, contract, activation = _linear(network.expand), _linear(network.contract), network.activation
    if not isinstance(activation, nn.ReLU):
        return lambda x: contract(activation(expand(x)))
    first: nn.Module = network.expand
    if isinstance(first, Int8Linear) or (isinstance(first, OneDnnLinear) and not first.small):
        return lambda x: contract(first.rectified(x))
    weight, bias = network.expand.weight.detach().T, network.expand.bias
    return lambda x: contract(torch._addmm_activation(bias, x, weight))


def _linear(layer: nn.Linear) -> Function:
    if isinstance(layer, Int8Linear):
        return layer.forward
    return _like(layer, layer.weight, layer.bias)


def _like(layer: nn.Module, weight: Tensor, bias: Tensor) -> Function:
    """xWᵀ + b of rows x [N, D] with these, in the way in which a layer computes its product."""
    if isinstance(layer, Int8Linear):
        return Int8Linear(weight, bias).forward
    if isinstance(layer, OneDnnLinear) and not layer.small:
        return layer.forward if layer.weight is weight else OneDnnLinear(weight, bias).forward
    return partial(_product, weight.detach().T, bias)


def _product(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    return torch.addmm(bias, x, weight)
