"""The fused step of decoding: one more token of every row, with all that stays from step to step looked up once.

A step of a small model is mostly the host's time, so here are few calls: one product for queries, keys and values, one
mask for all layers, no choice of kernels. The plain twin is a model's own `step`. It serves whatever is not known here:
several words at once, and recorded weights; so do layers, one by one, whose attention has rarer choices.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.accel.inference_weights import OneDnnLinear
from regard.accel.norm import add_norm_without_gradient
from regard.models.lm import LanguageModel
from regard.models.stack import NoNorm, embed_positions
from regard.models.state import DecoderState
from regard.models.transformer import Transformer
from regard.nn import dispatch
from regard.nn.attention import MultiHeadAttention
from regard.nn.backend.contract import nonstandard_reason
from regard.nn.cache import CrossKVCache, KVCache
from regard.nn.embedding import Embedding
from regard.nn.feed_forward import FeedForward
from regard.nn.layout import AttentionContext, Layout
from regard.nn.module_list import ModuleList
from regard.nn.norm import LayerNorm
from regard.nn.pattern import Causal
from regard.nn.position import Position
from regard.nn.residual import NoResidual, PostNorm, PreNorm
from regard.nn.score import Score

Function = Callable[[Tensor], Tensor]
HIDDEN = -1e30  # added to a score, this leaves exactly nothing of its weight, in any precision


class FusedStep:
    """A model of attention layers that decodes. Its layers are sub-layers in the order of what the state keeps."""

    def __init__(
        self, model: Any, words: Embedding, positions: ModuleList[Position], layers: Iterable[Any], norm: nn.Module
    ) -> None:
        self.model, self.start, self.longest = model, model.start, model.longest
        if hasattr(model, "encoder"):
            self.start = partial(model.start, encode=Reader(model))
        self.words, self.positions = words, positions
        self.layers = [Layer(layer) for layer in layers]
        self.norm, self.output = _norm(norm), model.output.forward

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """As the model's own."""
        if tokens.shape[1] != 1 or state.record is not None or self.model.training:
            return self.model.step(tokens, state)  # type: ignore[no-any-return]
        now = Now(state)
        x = F.embedding(tokens, self.words.weight)  # [N, 1, D]
        x = embed_positions(self.positions, x if self.words.factor == 1 else x * self.words.factor, now.queries)[:, 0]
        for layer, kept in zip(self.layers, state.layers, strict=True):
            x = layer(x, now, kept)
        state.advance(1)
        return self.output(self.norm(x))[:, None], state


def fused(model: Any) -> Any:
    """The model with fused steps, where it is made of attention layers; else the model itself."""
    if isinstance(model, Transformer):
        return FusedStep(model, model.target_embedding, model.decoder_position, model.decoder, model.decoder_norm)
    if isinstance(model, LanguageModel):
        return FusedStep(model, model.embedding, model.position, model.layers, model.norm)
    return model.fused() if hasattr(model, "fused") else model


class Now:
    """What all layers of a step share."""

    def __init__(self, state: DecoderState) -> None:
        self.state, self.places, self.reach = state, state.cache_positions, state.cache_positions.read_length()
        self.queries: Layout = self.places.next_layout(1)  # [N, 1]
        self.biases: dict[str, Tensor | None] = {}

    @cached_property
    def own(self) -> AttentionContext:
        return self.state.self_context(1)

    @cached_property
    def cross(self) -> AttentionContext:
        return self.state.cross_context(1)

    @cached_property
    def past(self) -> Tensor | None:
        """Which slots each row may see [B, 1, K, slots]; None: all."""
        places = self.places
        if places.history is not None:
            return places.visible_slots(1, self.reach)[:, None]
        if places.aligned:
            return None
        return (torch.arange(self.reach, device=places.position.device) <= self.queries.position)[:, None, None]

    @cached_property
    def source(self) -> Tensor | None:
        """Which places of the source are real [B, 1, 1, S]; None: all."""
        real = self.state.source_real
        return None if real is None else real[:, None, None]

    def bias(self, name: str, q: Tensor) -> Tensor | None:
        """What `past` or `source` adds to the scores of queries [B, H, K, d], as `attend` wants it."""
        if name not in self.biases:
            allow = getattr(self, name)
            mask = _by_head if dispatch.on_cpu(q.device) else _by_place
            self.biases[name] = None if allow is None else mask(allow, q)
        return self.biases[name]


# --- attention -----------------------------------------------------------------------------------------------------


def _by_place(allow: Tensor, q: Tensor) -> Tensor:
    """[B, 1, K, slots]"""
    return torch.zeros(allow.shape, dtype=q.dtype, device=q.device).masked_fill_(~allow, HIDDEN)


def _by_head(allow: Tensor, q: Tensor) -> Tensor:
    """[B·H, K, slots]"""
    return _by_place(allow, q).expand(*q.shape[:3], -1).flatten(0, 1)


def _products(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """softmax(scale · qᵀk + bias) v in two products: with so few queries, torch's fused kernel takes twice as long."""
    (b, h, n, _), flat = q.shape, q.flatten(0, 1)
    added = q.new_empty(1, 1, 1) if bias is None else bias
    scores = torch.baddbmm(added, flat, k.flatten(0, 1).mT, beta=0 if bias is None else 1, alpha=scale)  # [B·H, K, N]
    return torch.bmm(scores.softmax(-1), v.flatten(0, 1)).view(b, h, n, -1)


def _fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


class _Attention:
    def __init__(self, layer: MultiHeadAttention) -> None:
        assert layer.score.scale is not None
        self.layer, self.heads, self.scale = layer, layer.heads, layer.score.scale
        self.output = _linear(layer.output)
        position, score = layer.position, layer.score
        self.turns = type(position).rotate is not Position.rotate
        self.prepares = type(score).keys is not Score.keys

    def turn(self, x: Tensor, now: "Now | Source") -> Tensor:
        return self.layer.position.rotate(x, now.queries) if self.turns else x

    def split(self, x: Tensor) -> Tensor:
        return x.view(len(x), self.heads, 1, -1)  # [N, H·d] -> [N, H, 1, d]

    def attend(self, q: Tensor, k: Tensor, v: Tensor, name: str, now: Now, dtype: torch.dtype) -> Tensor:
        """Queries [N, H, 1, d] over keys [B, H, slots, d] and values: [N, D]."""
        rows = len(q)
        q = q.view(len(k), -1, *q.shape[1::2]).transpose(1, 2)  # [B, H, K, d]
        attend = _products if dispatch.on_cpu(q.device) else _fused
        out = attend(q, k, v, now.bias(name, q), self.scale)
        return self.output(out.transpose(1, 2).reshape(rows, -1).to(dtype))


class Own(_Attention):
    """What is said asks what was said."""

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__(layer)
        s = layer.sizes
        self.product = _like(layer.query, *layer.fused_projection())
        self.widths = [s.heads * s.d_k, s.heads * s.d_k, s.heads * s.d_v]

    def __call__(self, x: Tensor, now: Now, cache: KVCache) -> Tensor:
        made = self.product(x).to(cache.keys.dtype)  # [N, H·(2·d_k + d_v)]
        q, k, v = map(self.split, torch.split_with_sizes(made, self.widths, -1))
        q, k = self.turn(q, now), self.turn(k, now)
        k, v = cache.append(self.layer.score.keys(k) if self.prepares else k, v, now.reach)
        return self.attend(q, k, v, "past", now, x.dtype)


class Cross(_Attention):
    """What is said asks the source."""

    def __init__(self, layer: MultiHeadAttention) -> None:
        super().__init__(layer)
        self.query = _linear(layer.query)

    def __call__(self, x: Tensor, now: Now, cache: CrossKVCache) -> Tensor:
        q = self.turn(self.split(self.query(x).to(cache.keys.dtype)), now)
        return self.attend(q, cache.keys, cache.values, "source", now, x.dtype)


def _own(layer: MultiHeadAttention) -> Callable[[Tensor, Now, Any], Tensor]:
    def plain(x: Tensor, now: Now, cache: KVCache) -> Tensor:
        given = x[:, None]
        return layer(given, given, now.own, cache)[:, 0]  # type: ignore[no-any-return]

    return plain if nonstandard_reason(layer) else Own(layer)


def _causal(layer: MultiHeadAttention) -> bool:
    return Causal() in layer.pattern.parts()


def _cross(layer: MultiHeadAttention) -> Callable[[Tensor, Now, Any], Tensor]:
    def plain(x: Tensor, now: Now, cache: CrossKVCache) -> Tensor:
        return layer(x[:, None], None, now.cross, cache)[:, 0]  # type: ignore[no-any-return]

    return plain if nonstandard_reason(layer) else Cross(layer)


# --- reading the source --------------------------------------------------------------------------------------------


class Within(Own):
    """Words of a source [B·S, D] ask each other."""

    def __call__(self, x: Tensor, now: Any, cache: Any) -> Tensor:
        made = self.product(x).split(self.widths, -1)
        q, k, v = (part.view(*now.shape, self.heads, -1).transpose(1, 2) for part in made)
        q, k = self.turn(q, now), self.turn(k, now)  # [B, H, S, d]
        out = _fused(q, self.layer.score.keys(k) if self.prepares else k, v, now.bias, self.scale)
        return self.output(out.transpose(1, 2).reshape(len(x), -1))


class Source:
    """What all layers share that read a source."""

    def __init__(self, batch: Any) -> None:
        self.shape, real = batch.source.shape, batch.source_real
        self.queries = Layout.of(self.shape[1], real, batch.device)
        self.bias = None if real is None else real[:, None, None]  # [B, 1, 1, S]


class Reader:
    """`model.encode`, prepared as steps are; a CPU reads the few sentences that have just come in half the time."""

    def __init__(self, model: Any) -> None:
        self.model, self.layers = model, []
        if not any(nonstandard_reason(layer.attention) or _causal(layer.attention) for layer in model.encoder):
            self.layers = [Layer(layer, [Within(layer.attention)]) for layer in model.encoder]
        self.norm = _norm(model.encoder_norm)

    def __call__(self, batch: Any, record: Any = None) -> tuple[Tensor, Layout]:
        model = self.model
        if not self.layers or record is not None or batch.tree or not dispatch.on_cpu(batch.device) or model.training:
            return model.encode(batch, record)  # type: ignore[no-any-return]
        now = Source(batch)
        x = embed_positions(model.encoder_position, model.source_embedding(batch.source), now.queries).flatten(
            0, 1
        )  # [B·S, D]
        for layer in self.layers:
            x = layer(x, now, (None,))
        return self.norm(x).unflatten(0, now.shape), now.queries


# --- the rest of a layer -------------------------------------------------------------------------------------------


class Layer:
    def __init__(self, layer: Any, asks: Sequence[Any] = ()) -> None:
        self.asks = asks or [_own(layer.attention), *([_cross(layer.cross)] if hasattr(layer, "cross") else [])]
        self.joins = [_join(residual) for residual in layer.residuals]
        self.network = None if layer.feed_forward is None else _network(layer.feed_forward)

    def __call__(self, x: Tensor, now: Any, kept: Sequence[Any]) -> Tensor:
        for join, ask, cache in zip(self.joins, self.asks, kept, strict=False):
            x = join(x, lambda y, ask=ask, cache=cache: ask(y, now, cache))  # type: ignore[misc]
        return x if self.network is None else self.joins[-1](x, self.network)


def _join(residual: Any) -> Callable[[Tensor, Function], Tensor]:
    made, norm = residual.norm, _norm(residual.norm)
    if isinstance(residual, PostNorm) and isinstance(made, LayerNorm) and dispatch.available(made.weight):
        return lambda x, f: add_norm_without_gradient(x, f(x), made)
    joins: dict[type, Callable[[Tensor, Function], Tensor]] = {
        PostNorm: lambda x, f: norm(x + f(x)),
        PreNorm: lambda x, f: x + f(norm(x)),
        NoResidual: lambda x, f: norm(f(x)),
    }
    return joins[type(residual)]


def _norm(norm: nn.Module) -> Function:
    if isinstance(norm, NoNorm):
        return lambda x: x
    if not isinstance(norm, LayerNorm):
        return norm.forward  # type: ignore[no-any-return]
    shape, weight, bias, epsilon = norm.normalized_shape, norm.weight, norm.bias, norm.eps
    return lambda x: torch.layer_norm(x, shape, weight, bias, epsilon)


def _network(network: FeedForward) -> Function:
    if type(network) is not FeedForward:
        return network.forward
    inner, last, activation = _linear(network.expand), _linear(network.contract), network.activation
    if not isinstance(activation, nn.ReLU):
        return lambda x: last(activation(inner(x)))
    first: Any = network.expand
    if isinstance(first, OneDnnLinear) and not first.small:
        return lambda x: last(first.rectified(x))
    weight, bias = first.weight.detach().T, first.bias
    return lambda x: last(torch._addmm_activation(bias, x, weight))


def _linear(layer: Any) -> Function:
    return _like(layer, layer.weight, layer.bias)


def _like(layer: Any, weight: Tensor, bias: Tensor) -> Function:
    """xWᵀ + b of rows x [N, D] with these, in the way in which a layer makes its product."""
    if isinstance(layer, OneDnnLinear) and not layer.small:
        return layer.forward if layer.weight is weight else OneDnnLinear(weight, bias).forward
    return partial(_product, weight.detach().T, bias)


def _product(weight: Tensor, bias: Tensor, x: Tensor) -> Tensor:
    return torch.addmm(bias, x, weight)
