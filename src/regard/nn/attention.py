"""Attention: one plain function to quote, the layer that composes the five choices around it, and its heads.

score, position, pattern, compress and normalise are objects; a hook that a choice does not need is identity, so the
layer always calls all of them. Which kernel computes the result is `nn/backend`'s business.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import at_least, below_one, option
from regard.nn import backend, dispatch
from regard.nn.backend.contract import AttentionInputs, split_heads
from regard.nn.cache import CrossKVCache, KVCache
from regard.nn.compress import CompressConfig, NoCompressionConfig
from regard.nn.layout import AttentionContext, fold_beams, unfold_beams
from regard.nn.linear import Linear, linear
from regard.nn.normalise import NormaliseConfig, SoftmaxConfig
from regard.nn.pattern import PATTERNS, Pattern, parse_pattern
from regard.nn.position import Position
from regard.nn.record import LayerRecord
from regard.nn.score import ScaledDotConfig, ScoreConfig
from regard.nn.sizes import Sizes


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
    """The choices of one attention. A list is tiled over the layers."""

    score: ScoreConfig | list[ScoreConfig] = option(ScaledDotConfig, "how alike are a query and a key")
    pattern: str | list[str] = option("full", "who may look at whom, as window(256) | global(2)")
    normalise: NormaliseConfig | list[NormaliseConfig] = option(SoftmaxConfig, "how scores become weights")
    compress: CompressConfig | list[CompressConfig] = option(
        NoCompressionConfig, "how keys and values are shortened first"
    )
    projection: Literal["separate", "shared"] = option("separate", "of queries and keys: two matrices, or one for both")
    d_k: int | None = option(None, "size of a head's queries and keys; none: size/heads")
    d_v: int | None = option(None, "size of a head's values; none: size/heads")
    dropout: float = option(0.0, "dropout on the weights; the paper has none")

    def __post_init__(self) -> None:
        below_one(self, "dropout")
        at_least(self, 1, "d_k", "d_v")
        for name in ("score", "pattern", "normalise", "compress"):
            if getattr(self, name) == []:
                raise ValueError(f"{name} is an empty list; name at least one choice")
        for text in self.pattern if isinstance(self.pattern, list) else [self.pattern]:
            parse_pattern(text, PATTERNS)

    def layer(self, n: int) -> "AttentionConfig":
        """The choices of layer n, where lists are tiled."""
        lists = {f.name: value for f in fields(self) if isinstance(value := getattr(self, f.name), list)}
        return replace(self, **{name: value[n % len(value)] for name, value in lists.items()})

    def check(self, place: str, longest: int, layers: int) -> None:
        """Raise ValueError, with the reason, where the attention at this place cannot have these choices."""
        for n in range(layers):
            choices = self.layer(n)
            assert isinstance(choices.pattern, str)
            pattern = parse_pattern(choices.pattern, PATTERNS)
            if place not in pattern.places:
                raise ValueError(
                    f"the pattern {choices.pattern!r} belongs to {' or '.join(pattern.places)}, not {place}"
                )
            pattern.check(longest)
            compress = choices.compress
            assert not isinstance(compress, list)
            compress.check(place, longest)
            if not compress.keeps_order and choices.pattern != "full":
                raise ValueError(f"{compress.kind} mixes all positions, so no pattern can hide any; choose full")

    def sizes(self, size: int, heads: int) -> Sizes:
        return Sizes.of(size, heads, self.d_k, self.d_v)

    def build(
        self,
        size: int,
        heads: int,
        position: Position,
        always: Pattern,
        layer: int = 0,
        compress: nn.Module | None = None,
    ) -> "MultiHeadAttention":
        """`always` is the pattern of the place, which narrows the chosen one; `compress` one that layers share."""
        kind = {"separate": MultiHeadAttention, "shared": SharedQueryKey}[self.projection]
        return kind(self.sizes(size, heads), self, position, always, layer, compress)


class Attention(nn.Module):
    """The five choices around queries, keys and values that are given: [B, H, N, d] each."""

    def __init__(
        self,
        sizes: Sizes,
        config: AttentionConfig,
        position: Position,
        always: Pattern,
        layer: int = 0,
        compress: nn.Module | None = None,
        d_q: int | None = None,
    ) -> None:
        super().__init__()
        c = config.layer(layer)
        self.score = c.score.build(sizes, d_q)  # type: ignore[union-attr]
        self.normalise = c.normalise.build()  # type: ignore[union-attr]
        self.compress = compress or c.compress.build(sizes)  # type: ignore[union-attr]
        chosen = parse_pattern(str(c.pattern), PATTERNS).build(
            replace(sizes, d_k=d_q or sizes.d_k)
        )  # predicts from queries
        self.pattern = (chosen & always) if c.pattern != "full" else always
        self.learned = nn.ModuleList(self.pattern.modules())  # what a pattern predicts with
        self.sizes, self.position, self.layer, self.dropout = sizes, position, layer, c.dropout
        self.path = ""  # which kernel served the last call, and why no faster one

    def prepare(self, k: Tensor) -> Tensor:
        """Keys as they can be kept between calls: prepared for the score, unless they must be shortened first."""
        return k if self.compress.shortens else self.score.keys(k)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        call: AttentionContext,
        record: LayerRecord | None = None,
        parts: tuple[Tensor, ...] | None = None,
    ) -> Tensor:
        """Queries over prepared keys, by the fastest kernel; recording is done beside it and changes nothing.

        `parts` are the products that q, k and v are views of, where nothing was done to them since. There may be
        several rows of queries for one of keys: the beams of a sentence, side by side.
        """
        rows, q, call = len(q), fold_beams(q, len(k)), call.folded(len(k))
        if self.compress.shortens:
            k, v, keys = self.compress(k, v, call.keys)
            k, call = self.score.keys(k), AttentionContext(call.queries, keys)
        pattern = self.pattern.bind(q, call, self.layer)
        job = AttentionInputs(self, q, k, v, call, pattern, self.position.bias(q, call), parts)
        kernel, why = backend.choose(job)
        self.path = f"{kernel.__name__ if kernel else 'plain'}{f' ({why})' if why else ''}"
        if kernel is None:
            out, weights = self.reference(job)
        else:
            out = kernel(job)
        if record is not None:
            with torch.set_grad_enabled(record.graph and torch.is_grad_enabled()):
                seen = weights if kernel is None else self.reference(job)[1]
                record.steps.append(unfold_beams(seen if record.graph else seen.detach(), rows))
            if record.jobs is not None:
                record.jobs.append(job)
        return unfold_beams(out, rows)

    def reference(self, job: AttentionInputs) -> tuple[Tensor, Tensor]:
        """The plain path: output [B, H, Q, d_v] and weights [B, H, Q, K]."""
        call, pattern = job.call, job.pattern
        bias = None if job.bias is None else job.bias.dense(call)
        allow = pattern.mask(call, job.q.shape[1])
        out, weights = attention(job.q, job.k, job.v, self.score, self.normalise, allow, bias)
        gain = pattern.gain(call)
        if gain is not None:
            weights = weights * gain
        kept = F.dropout(weights, self.dropout, self.training)
        if gain is not None or (self.dropout and self.training):
            out = kept @ job.v
        mixed = self.position.mix(kept, call, call.grid())
        return (out if mixed is None else out + mixed), weights


def slow_paths(model: nn.Module) -> list[str]:
    """Which attentions of a model that has run take a slower way than they might, and why."""
    slow: dict[str, list[str]] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, Attention) and layer.path.startswith("plain"):
            slow.setdefault(layer.path.removeprefix("plain").strip(" ()"), []).append(name)
    return [f"attention in {', '.join(names)} is computed by the plain function: {why}" for why, names in slow.items()]


class MultiHeadAttention(Attention):
    """Project, split into heads, attend, concatenate, project (Vaswani 2017, 3.2.2)."""

    def __init__(self, sizes: Sizes, *choices: Any) -> None:
        super().__init__(sizes, *choices)  # as Attention has them
        s, self.heads = sizes, sizes.heads
        self.query = Linear(s.size, s.heads * s.d_k)
        self._keys_and_values(s)
        self.output = Linear(s.heads * s.d_v, s.size)
        self.inner_dropout: nn.Module = nn.Identity()  # of queries, keys and values; whoever builds a stack sets it

    def _keys_and_values(self, s: Sizes) -> None:
        self.key_value = Linear(s.size, s.heads * (s.d_k + s.d_v))  # one product for both: the memory is read once

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        call: AttentionContext,
        cache: KVCache | CrossKVCache | None = None,
        record: LayerRecord | None = None,
    ) -> Tensor:
        """x [B, Q, D] asks memory [B, K, D]; memory None means that the cache holds all the keys already."""
        if memory is None:
            assert isinstance(cache, CrossKVCache)
            q = self.position.rotate(self._split(self.query(x)), call.queries)  # [B, H, Q, d_k]
            k, v = cache.read()
            return self._join(self.attend(q.to(k.dtype), k, v, call, record).to(x.dtype))
        s, made = self.sizes, self.products(x, memory)
        dropped = {part: self.inner_dropout(part) for part in dict.fromkeys(made)}  # what is shared is dropped once
        parts = tuple(dropped[part] for part in made)
        first, second, v = split_heads(parts, s.heads, s.d_k, s.d_k, s.d_v)
        q = self.position.rotate(first, call.queries)
        k = self.position.rotate(second, call.queries if cache is not None else call.keys)  # new keys stand where x is
        k = self.prepare(k)
        as_made = parts if q is first and k is second and cache is None else None
        if isinstance(cache, KVCache):
            k, v = cache.append(k, v)
            if self.compress.shortens or record is not None:  # these want a row's keys in their order
                k, v, call = cache.apart(k, v, call)
            return self._join(self.attend(q.to(k.dtype), k, v, call, record).to(x.dtype))
        return self._join(self.attend(q, k, v, call, record, as_made))

    def products(self, x: Tensor, memory: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys and values, side by side in few products [B, N, …]: in one on a GPU, where x asks itself."""
        if x is not memory or not dispatch.usable(x):
            return self.query(x), self.key_value(memory)
        return (linear(x, *self.joined()),)

    def joined(self) -> tuple[Tensor, Tensor]:
        """The matrix and the bias that make queries, keys and values of what asks itself, side by side."""
        weights, biases = zip(*((part.weight, part.bias) for part in self._joined()), strict=True)
        return torch.cat(weights), torch.cat(biases)

    def _joined(self) -> list[nn.Linear]:
        return [self.query, self.key_value]

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory [B, K, D]: [B, H, K, d_k] and [B, H, K, d_v]."""
        k, v = split_heads((self.key_value(memory),), self.heads, self.sizes.d_k, self.sizes.d_v)
        return k, v

    def _join(self, out: Tensor) -> Tensor:
        return self.output(out.transpose(1, 2).flatten(2))  # [B, H, Q, d_v] -> [B, Q, D]

    def empty_cache(self, position: Tensor, length: int, like: Tensor) -> KVCache:
        """Room for the keys and values of `length` places a row."""
        d_k = self.sizes.d_k if self.compress.shortens else self.score.key_size  # as `prepare` leaves keys
        return KVCache.empty(len(position), self.heads, length, d_k, self.sizes.d_v, like, self._weighs())

    def full_cache(self, memory: Tensor) -> CrossKVCache:
        """The keys and values of a memory that does not change."""
        k, v = self.project(memory)
        return CrossKVCache.of(self.prepare(k), v, self._weighs())

    def _weighs(self) -> bool:
        """Whether a choice multiplies queries or keys with weights of its own."""
        biased = type(self.position).bias is not Position.bias
        parts = (self.score, self.compress, self.learned, *([self.position] if biased else []))
        return any(next(part.parameters(), None) is not None for part in parts)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # [B, N, H·d] -> [B, H, N, d]

    def reset_parameters(self) -> None:
        """Xavier for each of the projections by itself, however many share one matrix."""
        s = self.sizes
        for layer in (self.query, self.key_value, self.output):
            both = layer is self.key_value and layer.out_features == s.heads * (s.d_k + s.d_v)
            for part in layer.weight.split([s.heads * s.d_k, s.heads * s.d_v] if both else layer.out_features):
                nn.init.xavier_uniform_(part)
            nn.init.zeros_(layer.bias)


class SharedQueryKey(MultiHeadAttention):
    """One matrix for queries and keys: the scores are then symmetric (B2)."""

    def _keys_and_values(self, s: Sizes) -> None:
        self.key_value = Linear(s.size, s.heads * s.d_v)  # values alone

    def products(self, x: Tensor, memory: Tensor) -> tuple[Tensor, ...]:
        q = self.query(x)
        return q, (q if x is memory else self.query(memory)), self.key_value(memory)

    def _joined(self) -> list[nn.Linear]:
        return [self.query, self.query, self.key_value]

    def project(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        return self._split(self.query(memory)), self._split(self.key_value(memory))
