"""Attention: one plain function to quote, and the layer that composes the five choices around it.

`attention` is the formula. `Attention` puts score, position, pattern, compress and normalise around it, objects whose
hooks are identity where a choice does not need them. Its heads and projections are `multi_head.py`.

A mask is a `Pattern`, and "real" says what is no padding. Its way: a model passes the base pattern, `Causal() &
Padding() & Document()` (`models/transformer.py`; they are in `pattern/masks.py`), and the recipe's pattern joins it by
&. `Attention.attend` binds both to the queries and to what the context (`layout.py`) says of positions and padding, and
picks a backend; `Attention.reference`, which has no kernel, makes them a dense mask, which `attention` takes as
`allow`, and so does SDPA where `mask_kind` is "mask". In training a target's padding needs none: it lies in the future
of all that is real. Where the choices let it, decoding fuses the same for one token at a time (`accel/fused_step.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import at_least, below_one, option
from regard.errors import RegardError
from regard.nn.backend import BLOCKS, SDPA, AttentionInputs, Backend
from regard.nn.compress import CompressConfig, Compressor, NoCompressionConfig
from regard.nn.layout import AttentionContext, fold_beams, unfold_beams
from regard.nn.normalise import NormaliseConfig, SoftmaxConfig
from regard.nn.pattern import PATTERNS, DenseMask, Full, Pattern, parse_pattern
from regard.nn.position import Position
from regard.nn.record import LayerRecord
from regard.nn.score import ScaledDotConfig, ScoreConfig
from regard.nn.sizes import Sizes

T = TypeVar("T")

BACKENDS: list[Backend] = [BLOCKS, SDPA]  # in the order in which they are tried; `regard.accel` puts its own in front


def attention(
    q: Tensor,  # [B, H, Q, d_k]
    k: Tensor,  # [B, H, K, d_k]
    v: Tensor,  # [B, H, K, d_v]
    score: Callable[[Tensor, Tensor], Tensor],
    normalise: Callable[[Tensor, Tensor | None], Tensor],
    allow: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax(qᵀk / √d_k) v, with every part exchangeable: the output [B, H, Q, d_v] and the weights [B, H, Q, K].

    `allow` is the mask: True where a query may attend to a key. `bias` is added to the scores.
    """
    scores = score(q, k)  # [B, H, Q, K]
    if bias is not None:
        scores = scores + bias
    weights = normalise(scores, allow)  # masked scores become −∞ there, and their weights 0
    return weights.to(v.dtype) @ v, weights  # a bias may be more precise than the values are


@dataclass(frozen=True)
class AttentionConfig:
    """The choices of one attention. A list is tiled over the layers."""

    score: ScoreConfig | list[ScoreConfig] = option(ScaledDotConfig, "how alike are a query and a key")
    pattern: str | list[str] = option("full", "the attention mask, as window(256) | global(2)")
    normalise: NormaliseConfig | list[NormaliseConfig] = option(SoftmaxConfig, "how scores become weights")
    compress: CompressConfig | list[CompressConfig] = option(
        NoCompressionConfig, "how keys and values are shortened first"
    )
    projection: Literal["separate", "shared"] = option("separate", "of queries and keys: two matrices, or one for both")
    d_k: int | None = option(None, "size of a head's queries and keys; none: size/heads")
    d_v: int | None = option(None, "size of a head's values; none: size/heads")
    heads: int | None = option(None, "heads of this attention; none: the model's")
    kv_heads: int | None = option(None, "heads of keys and values, each for several of queries; none: as many")
    qk_norm: bool = option(False, "RMSNorm on the queries and keys of every head, before they are rotated")
    dropout: float = option(0.0, "dropout on the weights; the paper has none")

    def __post_init__(self) -> None:
        below_one(self, "dropout")
        at_least(self, 1, "d_k", "d_v", "heads", "kv_heads")
        for name in ("score", "pattern", "normalise", "compress"):
            if vars(self)[name] == []:
                raise ValueError(f"{name} is an empty list; name at least one choice")
        for text in self.pattern if isinstance(self.pattern, list) else [self.pattern]:
            parse_pattern(text, PATTERNS)
        if self.kv_heads is not None:
            self._check_groups()

    def projection_keys(self) -> list[str]:
        """The keys that are set and say something of projections, which some models have not."""
        usual = AttentionConfig()
        names = ("projection", "d_k", "d_v", "heads", "kv_heads", "qk_norm")
        return [name for name in names if getattr(self, name) != getattr(usual, name)]

    def _check_groups(self) -> None:
        if self.projection == "shared":
            raise ValueError("kv_heads needs projection: separate: shared queries and keys have as many heads")
        for name, known in (("score", ("scaled_dot", "dot")), ("compress", ("none",))):
            choices = getattr(self, name)
            for choice in choices if isinstance(choices, list) else [choices]:
                if choice.kind not in known:
                    raise ValueError(f"kv_heads needs {name}: {' or '.join(known)}; {choice.kind} has its own heads")

    def layer(self, n: int) -> "LayerChoices":
        """The choices of layer n: a list is tiled over the layers."""

        def tiled(choice: T | list[T]) -> T:
            return choice[n % len(choice)] if isinstance(choice, list) else choice

        return LayerChoices(tiled(self.score), tiled(self.pattern), tiled(self.normalise), tiled(self.compress))

    def check(self, role: str, longest: int, layers: int) -> None:
        """Raise ValueError, with the reason, where an attention in this role cannot have these choices."""
        for n in range(layers):
            c = self.layer(n)
            pattern = parse_pattern(c.pattern, PATTERNS)
            if role not in pattern.roles:
                raise ValueError(f"the pattern {c.pattern!r} belongs to {' or '.join(pattern.roles)}, not {role}")
            pattern.check(longest)
            c.compress.check(role, longest)
            if not c.compress.keeps_order and c.pattern != "full":
                raise ValueError(f"{c.compress.kind} mixes all positions, so no pattern can hide any; choose full")

    def sizes(self, size: int, heads: int) -> Sizes:
        return Sizes.of(size, self.heads or heads, self.d_k, self.d_v, self.kv_heads)


@dataclass(frozen=True)
class LayerChoices:
    """The choices of one layer."""

    score: ScoreConfig
    pattern: str
    normalise: NormaliseConfig
    compress: CompressConfig


class Attention(nn.Module):
    """The five choices around queries, keys and values [B, H, N, d]; it projects nothing."""

    def __init__(
        self,
        sizes: Sizes,
        config: AttentionConfig,
        position: Position,
        base_pattern: Pattern,
        layer: int = 0,
        compress: Compressor | None = None,
        d_q: int | None = None,
    ) -> None:
        super().__init__()
        c = config.layer(layer)
        self.score = c.score.build(sizes, d_q)
        self.normalise = c.normalise.build()
        self.compress = compress or c.compress.build(sizes)
        self.shortens = self.compress.shortens  # asked at every call, where nn.Module would look for `compress`
        parsed = parse_pattern(c.pattern, PATTERNS)
        pattern = parsed.build(replace(sizes, d_k=d_q or sizes.d_k))  # what is predicted is predicted from queries
        self.pattern = base_pattern if parsed == Full() else pattern & base_pattern
        self.learned = nn.ModuleList(self.pattern.modules())  # what a pattern predicts with
        self.sizes, self.position, self.layer, self.dropout = sizes, position, layer, config.dropout
        self.path = ""  # which backend computed the last output, and why no faster one

    def prepare_keys(self, k: Tensor) -> Tensor:
        """Keys as a cache holds them: prepared for the score, unless they must be compressed first."""
        return k if self.shortens else self.score.keys(k)

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        context: AttentionContext,
        record: LayerRecord | None = None,
        parts: tuple[Tensor, ...] | None = None,
    ) -> Tensor:
        """The output for queries over prepared keys, by the fastest backend; recording changes nothing of it.

        `parts` are the products that q, k and v are views of, where nothing was done to them since. There may be
        several rows of queries for one of keys: the beams of a sentence, side by side.
        """
        if self.shortens:
            k, v, context = self.shorten(k, v, context)
        return self.attend_prepared(q, k, v, context, record, parts)

    def shorten(self, k: Tensor, v: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor, AttentionContext]:
        """Compressed keys, prepared for the score, their values, and the context with their layout."""
        if context.caller_mask is not None:
            raise RegardError("compressed keys take a mask of padding alone, [B, K], not one for each query")
        k, v, keys = self.compress(k, v, context.keys)
        name = ("compressed", type(self.compress), self.compress.stride, k.shape[2], keys.end)
        return self.score.keys(k), v, context.once(name, lambda: AttentionContext(context.queries, keys))

    def attend_prepared(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        context: AttentionContext,
        record: LayerRecord | None = None,
        parts: tuple[Tensor, ...] | None = None,
    ) -> Tensor:
        """The same over keys that are compressed already."""
        rows, sentences = q.shape[0], k.shape[0]
        if rows != sentences:
            q, context = fold_beams(q, sentences), context.fold_beams(sentences)
        pattern = self.pattern.bind(q, context, self.layer) if self.pattern.binds else self.pattern
        if (mask := context.caller_mask) is not None:
            pattern = pattern & context.once("dense mask", lambda: DenseMask(mask))
        inputs = AttentionInputs(self, q, k, v, context, pattern, self.position.bias(q, context), parts)
        backend, why = choose_backend(inputs)
        path = f"{backend.name if backend else 'plain'}{f' ({why})' if why else ''}"
        object.__setattr__(self, "path", path)  # nn.Module's own way asks whether it is a parameter
        if backend is None:
            out, weights = self.reference(inputs)
        else:
            out = backend.compute(inputs if backend.grouped else inputs.repeat_keys())
        if record is not None:
            with torch.set_grad_enabled(record.keep_graph and torch.is_grad_enabled()):
                seen = weights if backend is None else self.reference(inputs)[1]
                record.weights.append(unfold_beams(seen if record.keep_graph else seen.detach(), rows))
            if record.inputs is not None:
                record.inputs.append(inputs.repeat_keys())
        return out if rows == sentences else unfold_beams(out, rows)

    def reference(self, inputs: AttentionInputs) -> tuple[Tensor, Tensor]:
        """The plain function with all choices: output [B, H, Q, d_v] and weights [B, H, Q, K]."""
        inputs = inputs.repeat_keys()
        context, pattern = inputs.context, inputs.pattern
        bias = None if inputs.bias is None else inputs.bias.dense(context)
        allow = pattern.mask(context, inputs.q.shape[1])
        out, weights = attention(inputs.q, inputs.k, inputs.v, self.score, self.normalise, allow, bias)
        gain = pattern.gain(context)
        if gain is not None:
            weights = weights * gain
        kept = F.dropout(weights, self.dropout, self.training)
        if gain is not None or (self.dropout and self.training):
            out = kept.to(inputs.v.dtype) @ inputs.v
        mixed = self.position.mix(kept, context, context.grid())
        return (out if mixed is None else out + mixed), weights


def choose_backend(inputs: AttentionInputs) -> tuple[Backend | None, str]:
    """The first backend that serves the inputs, or None for the plain function; and why no faster one does."""
    why = ""
    for backend in BACKENDS:
        reason = backend.unsupported_reason(inputs)
        if reason is None:
            return backend, why
        why = reason
    return None, why


def slow_paths(model: nn.Module) -> list[str]:
    """The attentions of a model that has run which the plain function computed, and why."""
    slow: dict[str, list[str]] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, Attention) and layer.path.startswith("plain"):
            slow.setdefault(layer.path.removeprefix("plain").strip(" ()"), []).append(name)
    return [f"attention in {', '.join(names)} is computed by the plain function: {why}" for why, names in slow.items()]
