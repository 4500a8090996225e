"""The Transformer of "Attention Is All You Need" (Vaswani 2017): encoder, decoder, and stepwise decoding.

Layers receive their parts; they do not build them from flags. Sizes live in PRESETS, as data.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from regard.config import option
from regard.models.batch import Pairs
from regard.models.state import State
from regard.nn.attention import AttentionConfig, MultiHeadAttention
from regard.nn.cache import Cache
from regard.nn.embedding import Embedding, Output
from regard.nn.feed_forward import FeedForward, FeedForwardConfig
from regard.nn.init import INITS
from regard.nn.layout import Call, Layout
from regard.nn.pattern import Causal, Document, Full, Padding, Pattern
from regard.nn.position import Position, PositionConfig, SinusoidalConfig
from regard.nn.residual import RESIDUALS

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 4, "size": 128, "inner": 256, "heads": 4, "dropout": 0.3},
    "small": {"layers": 6, "size": 256, "inner": 1024, "heads": 4, "dropout": 0.2},
    "base": {"layers": 6, "size": 512, "inner": 2048, "heads": 8, "dropout": 0.1},
    "big": {"layers": 6, "size": 1024, "inner": 4096, "heads": 16, "dropout": 0.3},
}


@dataclass(frozen=True)
class AttentionsConfig:
    """One block of choices for each of the three places; a flat block means all three."""

    encoder: AttentionConfig = option(AttentionConfig, "source looks at source")
    decoder: AttentionConfig = option(AttentionConfig, "target looks at earlier target")
    cross: AttentionConfig = option(AttentionConfig, "target looks at source")

    @classmethod
    def expand(cls, value: dict[str, Any]) -> dict[str, Any]:
        places = ("encoder", "decoder", "cross")
        common = {k: v for k, v in value.items() if k not in places}
        return {place: {**common, **(value.get(place) or {})} for place in places} if common else value


@dataclass(frozen=True)
class TransformerConfig:
    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS

    kind: Literal["transformer"] = "transformer"
    preset: str | None = option(None, f"named sizes: {', '.join(PRESETS)}; any key given beside it wins")
    layers: int = option(6, "of the encoder, and of the decoder unless decoder_layers says otherwise")
    decoder_layers: int | None = option(None, "of the decoder; none: as many as the encoder has")
    size: int = option(512, "D, the width of the model")
    inner: int = option(2048, "width inside the feed-forward network")
    heads: int = option(8, "H; each has size/heads dimensions")
    dropout: float = option(0.1, "on every sub-layer's output and on the embeddings")
    residual: Literal["post_norm", "pre_norm"] = option("post_norm", "the paper's order, or norm first")
    activation: Literal["relu", "gelu", "swish"] = option("relu", "in the feed-forward network")
    share: Literal["none", "target", "all"] = option(
        "all", "one matrix for target embedding and output (target), and for the source embedding too (all)"
    )
    init: Literal["xavier", "normal"] = option("normal", "how weights begin: by fan-in and fan-out, or N(0, 0.02²)")
    scale_embedding: bool = option(True, "multiply embeddings by √size")
    position: PositionConfig = option(SinusoidalConfig, "how order enters")
    attention: AttentionsConfig = option(AttentionsConfig, "the five choices, for encoder, decoder and cross")

    def __post_init__(self) -> None:
        for name in ("layers", "decoder_layers", "size", "inner", "heads"):
            if (count := getattr(self, name)) is not None and count < 1:
                raise ValueError(f"{name} must be at least 1, not {count}")
        if self.size % self.heads:
            raise ValueError(f"{self.heads} heads do not divide the size {self.size}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {self.dropout}")
        self.position.check(self.size)

    def build(self, source_entries: int, target_entries: int) -> "Transformer":
        if self.share == "all" and source_entries != target_entries:
            raise ValueError("model.share: all needs one shared vocabulary (text.shared: true)")
        return Transformer(self, source_entries, target_entries)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each inside its residual."""

    def __init__(self, attention: MultiHeadAttention, feed_forward: FeedForward, residuals: list[nn.Module]) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.residuals = nn.ModuleList(residuals)

    def forward(self, x: Tensor, call: Call) -> Tensor:
        x = self.residuals[0](x, lambda y: self.attention(y, y, call))
        return self.residuals[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention over what is said so far, attention to the source, feed-forward."""

    def __init__(
        self,
        attention: MultiHeadAttention,
        cross: MultiHeadAttention,
        feed_forward: FeedForward,
        residuals: list[nn.Module],
    ) -> None:
        super().__init__()
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward
        self.residuals = nn.ModuleList(residuals)

    def forward(
        self, x: Tensor, memory: Tensor | None, own: Call, cross: Call, caches: tuple[Cache, Cache] | None = None
    ) -> Tensor:
        """memory None: the cross cache holds the source's keys already."""
        past, source = caches or (None, None)
        x = self.residuals[0](x, lambda y: self.attention(y, y, own, past))
        x = self.residuals[1](x, lambda y: self.cross(y, memory, cross, source))
        return self.residuals[2](x, self.feed_forward)

    def caches(self, memory: Tensor, position: Tensor, length: int) -> tuple[Cache, Cache]:
        """Room for `length` tokens of its own past, and the keys of the source."""
        own = self.attention
        past = Cache.empty(position, own.heads, length, own.d_k, own.d_k, memory)
        return past, Cache(*self.cross.project(memory), position, filled=memory.shape[1])


class Transformer(nn.Module):
    def __init__(self, config: TransformerConfig, source_entries: int, target_entries: int) -> None:
        super().__init__()
        c, self.config = config, config
        self.source_embedding = Embedding(source_entries, c.size, c.scale_embedding)
        self.target_embedding = (
            self.source_embedding if c.share == "all" else Embedding(target_entries, c.size, c.scale_embedding)
        )
        self.output = Output(self.target_embedding if c.share != "none" else None, target_entries, c.size)
        self.position: Position = c.position.build(c.size)
        self.dropout = nn.Dropout(c.dropout)

        nowhere = Position()  # source and target positions have nothing to do with each other
        seen = Padding() & Document()

        def attention(choices: AttentionConfig, position: Position, pattern: Pattern, n: int) -> MultiHeadAttention:
            return choices.build(c.size, c.heads, position, pattern, n)

        def residuals(count: int) -> list[nn.Module]:
            return [RESIDUALS[c.residual](c.size, c.dropout) for _ in range(count)]

        feed_forward = FeedForwardConfig(c.inner, c.activation)
        self.encoder = nn.ModuleList(
            EncoderLayer(
                attention(c.attention.encoder, self.position, Full() & seen, n),
                feed_forward.build(c.size),
                residuals(2),
            )
            for n in range(c.layers)
        )
        self.decoder = nn.ModuleList(
            DecoderLayer(
                attention(c.attention.decoder, self.position, Causal() & seen, n),
                attention(c.attention.cross, nowhere, Full() & seen, n),
                feed_forward.build(c.size),
                residuals(3),
            )
            for n in range(c.decoder_layers or c.layers)
        )
        final = RESIDUALS[c.residual].final_norm
        self.encoder_norm = nn.LayerNorm(c.size) if final else nn.Identity()
        self.decoder_norm = nn.LayerNorm(c.size) if final else nn.Identity()
        INITS[c.init](self)

    # --- the whole sequence at once: training, scoring ---------------------------------------------------------

    def encode(self, source: Tensor, real: Tensor | None) -> tuple[Tensor, Layout]:
        """Source ids [B, S] as memory [B, S, D], with the layout that attention to it needs."""
        layout = Layout.of(source.shape[1], real, source.device)
        call = Call(layout, layout)
        x = self.dropout(self.position.embed(self.source_embedding(source), layout))
        for layer in self.encoder:
            x = layer(x, call)
        return self.encoder_norm(x), layout

    def decode(self, target: Tensor, memory: Tensor, source: Layout) -> Tensor:
        """Hidden states [B, T, D] of all target places at once; none sees a later one."""
        layout = Layout.of(target.shape[1], device=target.device)
        own, cross = Call(layout, layout), Call(layout, source)
        x = self.dropout(self.position.embed(self.target_embedding(target), layout))
        for layer in self.decoder:
            x = layer(x, memory, own, cross)
        return self.decoder_norm(x)

    def forward(self, batch: Pairs) -> Tensor:
        """Scores of the vocabulary at every real target place [N, V], in the order of `batch.labels`."""
        assert batch.target is not None
        assert batch.places is not None
        memory, layout = self.encode(batch.source, batch.source_real)
        hidden = self.decode(batch.target, memory, layout)  # [B, T, D]
        return self.output(hidden.flatten(0, 1)[batch.places])

    # --- step by step: decoding --------------------------------------------------------------------------------

    def start(self, batch: Pairs, length: int) -> State:
        """Read the source; the state then has room for `length` target tokens a row."""
        memory, layout = self.encode(batch.source, batch.source_real)
        position = torch.zeros(len(memory), dtype=torch.long, device=memory.device)
        caches = [layer.caches(memory, position, length) for layer in self.decoder]  # type: ignore[operator]
        return State(position, caches, layout.real, layout.length, length)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read T more tokens a row [B, T]; give the scores of what follows each [B, T, V]."""
        steps = tokens.shape[1]
        places = state.position[:, None] + torch.arange(steps, device=tokens.device)  # [B, T]
        filled = min(state.filled + steps, state.length)
        queries = Layout(places, filled)
        keys = Layout.of(filled, device=tokens.device)
        own = Call(queries, keys)
        cross = Call(queries, Layout.of(state.source_length, state.source_real, tokens.device))
        x = self.position.embed(self.target_embedding(tokens), queries)
        for layer, caches in zip(self.decoder, state.caches, strict=True):
            x = layer(x, None, own, cross, caches)
        state.advance(steps)
        return self.output(self.decoder_norm(x)), state
