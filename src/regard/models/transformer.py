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
from regard.nn.feed_forward import Activation, FeedForward, feed_forward
from regard.nn.init import INITS
from regard.nn.layout import Call, Layout
from regard.nn.norm import NORMS
from regard.nn.pattern import Causal, Document, Padding, Pattern
from regard.nn.position import Position, PositionConfig, SinusoidalConfig
from regard.nn.record import Record, Sink
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


Positions = PositionConfig | list[PositionConfig]


@dataclass(frozen=True)
class PositionsConfig:
    """Positions of the source and of the target; one choice alone means both. A list is tiled over the layers."""

    encoder: Positions = option(SinusoidalConfig, "of the source")
    decoder: Positions = option(SinusoidalConfig, "of the target")

    @classmethod
    def shorthand(cls, value: Any) -> dict[str, Any]:
        return {"encoder": value, "decoder": value}

    @classmethod
    def expand(cls, value: dict[str, Any]) -> dict[str, Any]:
        common = {k: v for k, v in value.items() if k not in ("encoder", "decoder")}
        return {place: value.get(place, common) for place in ("encoder", "decoder")} if common else value

    def of(self, place: str) -> list[PositionConfig]:
        chosen = getattr(self, place)
        return chosen if isinstance(chosen, list) else [chosen]


@dataclass(frozen=True)
class TransformerConfig:
    """Encoder and decoder of self-attention and feed-forward layers."""

    presets: ClassVar[dict[str, dict[str, Any]]] = PRESETS
    id: ClassVar[str] = "A1"
    formula: ClassVar[str] = "x ← norm(x + f(x)), f: attention, attention to the source, feed-forward"
    paper: ClassVar[str] = "Vaswani 2017"

    kind: Literal["transformer"] = "transformer"
    preset: str | None = option(None, f"named sizes: {', '.join(PRESETS)}; any key given beside it wins")
    layers: int = option(6, "of the encoder, and of the decoder unless decoder_layers says otherwise")
    decoder_layers: int | None = option(None, "of the decoder; none: as many as the encoder has")
    size: int = option(512, "D, the width of the model")
    inner: int = option(2048, "width inside the feed-forward network")
    heads: int = option(8, "H; each has size/heads dimensions")
    dropout: float = option(0.1, "on every sub-layer's output and on the embeddings")
    residual: Literal["post_norm", "pre_norm", "none"] = option(
        "post_norm", "the paper's order, norm first, or no residual at all"
    )
    norm: Literal["layer", "batch"] = option("layer", "LayerNorm, or BatchNorm in its place")
    feed_forward: Literal["dense", "none"] = option("dense", "the network after attention, or attention alone")
    activation: Activation = option("relu", "in the feed-forward network; swiglu adds a gate")
    share: Literal["none", "target", "all"] = option(
        "all", "one matrix for target embedding and output (target), and for the source embedding too (all)"
    )
    output_bias: bool = option(False, "a learned number for every word, added to its score")
    init: Literal["xavier", "normal"] = option("normal", "how weights begin: by fan-in and fan-out, or N(0, 0.02²)")
    scale_embedding: bool = option(True, "multiply embeddings by √size")
    position: PositionsConfig = option(PositionsConfig, "how order enters: one choice, or encoder and decoder apart")
    attention: AttentionsConfig = option(AttentionsConfig, "the five choices, for encoder, decoder and cross")

    def __post_init__(self) -> None:
        for name in ("layers", "decoder_layers", "size", "inner", "heads"):
            if (count := getattr(self, name)) is not None and count < 1:
                raise ValueError(f"{name} must be at least 1, not {count}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), not {self.dropout}")
        for place in ("encoder", "decoder", "cross"):
            sizes = getattr(self.attention, place).sizes(self.size, self.heads)
            for position in self.position.of(place) if place != "cross" else []:
                if place not in position.places:
                    raise ValueError(f"{position.kind} positions belong to the {position.places[0]}, not the {place}")
                position.check(sizes)

    def check(self, source: int, target: int) -> None:
        """Raise ValueError where sequences of at most so many places are more than the choices can serve."""
        for place, longest in (("encoder", source), ("decoder", target), ("cross", source)):
            layers = self.layers if place == "encoder" else self.decoder_layers or self.layers
            getattr(self.attention, place).check(place, longest, layers)
        for place, longest in (("encoder", source), ("decoder", target)):
            for position in self.position.of(place):
                room = getattr(position, "length", None)
                if room is not None and room < longest:
                    raise ValueError(
                        f"position.{place}.length is {room}, shorter than the longest input of {longest} places "
                        "(data.filters.max_length and the end); raise it, or lower max_length"
                    )

    def build(self, source_entries: int, target_entries: int) -> "Transformer":
        if self.share == "all" and source_entries != target_entries:
            raise ValueError("model.share: all needs one shared vocabulary (text.shared: true)")
        return Transformer(self, source_entries, target_entries)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward, each inside its residual."""

    is_layer = True  # one of many alike, which several processes may share out

    def __init__(
        self, attention: MultiHeadAttention, feed_forward: FeedForward | None, residuals: list[nn.Module]
    ) -> None:
        super().__init__()
        self.attention, self.feed_forward = attention, feed_forward
        self.residuals = nn.ModuleList(residuals)

    def forward(self, x: Tensor, call: Call, record: Sink | None = None) -> Tensor:
        real = call.queries.real
        x = self.residuals[0](x, lambda y: self.attention(y, y, call, record=record), real)
        return x if self.feed_forward is None else self.residuals[1](x, self.feed_forward, real)


class DecoderLayer(nn.Module):
    """Self-attention over what is said so far, attention to the source, feed-forward."""

    is_layer = True

    def __init__(
        self,
        attention: MultiHeadAttention,
        cross: MultiHeadAttention,
        feed_forward: FeedForward | None,
        residuals: list[nn.Module],
    ) -> None:
        super().__init__()
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward
        self.residuals = nn.ModuleList(residuals)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None,
        own: Call,
        cross: Call,
        caches: tuple[Cache, Cache] | None = None,
        records: tuple[Sink | None, Sink | None] = (None, None),
    ) -> Tensor:
        """memory None: the cross cache holds the source's keys already."""
        past, source = caches or (None, None)
        real = own.queries.real
        x = self.residuals[0](x, lambda y: self.attention(y, y, own, past, records[0]), real)
        x = self.residuals[1](x, lambda y: self.cross(y, memory, cross, source, records[1]), real)
        return x if self.feed_forward is None else self.residuals[2](x, self.feed_forward, real)

    def caches(self, memory: Tensor, position: Tensor, length: int) -> tuple[Cache, Cache]:
        """Room for `length` tokens of its own past, and the keys of the source."""
        return self.attention.empty_cache(position, length, memory), self.cross.full_cache(memory, position)


class Transformer(nn.Module):
    def __init__(self, config: TransformerConfig, source_entries: int, target_entries: int) -> None:
        super().__init__()
        c, self.config = config, config
        self.source_embedding = Embedding(source_entries, c.size, c.scale_embedding)
        self.target_embedding = (
            self.source_embedding if c.share == "all" else Embedding(target_entries, c.size, c.scale_embedding)
        )
        tied = self.target_embedding if c.share != "none" else None
        self.output = Output(tied, target_entries, c.size, c.output_bias)
        self.dropout = nn.Dropout(c.dropout)
        self.encoder_position = self._positions("encoder")
        self.decoder_position = self._positions("decoder")
        nowhere = nn.ModuleList([Position()])  # source and target positions have nothing to do with each other
        seen = Padding() & Document()
        encoder = self._attentions("encoder", c.layers, self.encoder_position, seen)
        decoder = self._attentions("decoder", c.decoder_layers or c.layers, self.decoder_position, Causal() & seen)
        cross = self._attentions("cross", c.decoder_layers or c.layers, nowhere, seen)
        self.encoder = nn.ModuleList(EncoderLayer(own, self._network(), self._residuals(2)) for own in encoder)
        self.decoder = nn.ModuleList(
            DecoderLayer(own, other, self._network(), self._residuals(3))
            for own, other in zip(decoder, cross, strict=True)
        )
        final = RESIDUALS[c.residual].final_norm
        self.encoder_norm: nn.Module = NORMS[c.norm](c.size) if final else _Nothing()
        self.decoder_norm: nn.Module = NORMS[c.norm](c.size) if final else _Nothing()
        INITS[c.init](self)

    # --- the parts ---------------------------------------------------------------------------------------------

    def _positions(self, place: str) -> nn.ModuleList:
        sizes = getattr(self.config.attention, place).sizes(self.config.size, self.config.heads)
        return nn.ModuleList(position.build(sizes, place) for position in self.config.position.of(place))

    def _attentions(
        self, place: str, layers: int, positions: nn.ModuleList, always: Pattern
    ) -> list[MultiHeadAttention]:
        c = self.config
        choices: AttentionConfig = getattr(c.attention, place)
        shared: dict[Any, nn.Module] = {}  # a compressor that layers share is built once
        made = []
        for n in range(layers):
            compress = choices.layer(n).compress
            position: Position = positions[n % len(positions)]  # type: ignore[assignment]
            layer = choices.build(c.size, c.heads, position, always, n, shared.get(compress))
            if compress.shared_by_layers:  # type: ignore[union-attr]
                shared[compress] = layer.compress
            made.append(layer)
        return made

    def _network(self) -> FeedForward | None:
        c = self.config
        return feed_forward(c.size, c.inner, c.activation) if c.feed_forward == "dense" else None

    def _residuals(self, count: int) -> list[nn.Module]:
        c = self.config
        count -= c.feed_forward == "none"
        return [RESIDUALS[c.residual](NORMS[c.norm](c.size), c.dropout) for _ in range(count)]

    @property
    def longest(self) -> int | None:
        """How many target places the model can tell apart, where there is a limit."""
        limits: list[Any] = [position.longest for position in self.decoder_position if position.longest is not None]
        return min(limits, default=None)

    # --- the whole sequence at once: training, scoring ---------------------------------------------------------

    def encode(self, batch: Pairs, record: Record | None = None) -> tuple[Tensor, Layout]:
        """The source ids [B, S] as memory [B, S, D], with the layout that attention to it needs."""
        layout = Layout.of(batch.source.shape[1], batch.source_real, batch.source.device, batch.tree)
        call = Call(layout, layout)
        x = self.dropout(_embed(self.encoder_position, self.source_embedding(batch.source), layout))
        for n, layer in enumerate(self.encoder):
            x = layer(x, call, record and record.at("encoder", n))
        return self.encoder_norm(x, layout.real), layout

    def decode(
        self, target: Tensor, real: Tensor | None, memory: Tensor, source: Layout, record: Record | None = None
    ) -> Tensor:
        """Hidden states [B, T, D] of all target places at once; none sees a later one."""
        layout = Layout.of(target.shape[1], real, target.device)
        own, cross = Call(layout, layout), Call(layout, source)
        x = self.dropout(_embed(self.decoder_position, self.target_embedding(target), layout))
        for n, layer in enumerate(self.decoder):
            x = layer(x, memory, own, cross, records=_sinks(record, n))
        return self.decoder_norm(x, real)

    def forward(self, batch: Pairs, record: Record | None = None, smoothing: float | None = None) -> Tensor:
        """Scores of the vocabulary at every real target place [N, V], in the order of `batch.labels`.

        With `smoothing`, the loss of those labels, summed, instead: the scores are then never kept.
        """
        assert batch.target is not None
        assert batch.places is not None
        memory, layout = self.encode(batch, record)
        real = batch.target_real if self.config.norm == "batch" else None  # else causality hides the padding
        hidden = self.decode(batch.target, real, memory, layout, record)  # [B, T, D]
        return self.output.at(hidden.flatten(0, 1)[batch.places], batch.labels, smoothing)

    # --- step by step: decoding --------------------------------------------------------------------------------

    def start(self, batch: Pairs, length: int, record: Record | None = None) -> State:
        """Read the source; the state then has room for `length` target tokens a row."""
        memory, layout = self.encode(batch, record)
        position = torch.zeros(len(memory), dtype=torch.long, device=memory.device)
        caches = [layer.caches(memory, position, length) for layer in self.decoder]  # type: ignore[operator]
        return State(position, caches, layout.real, layout.length, length, record=record)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Read T more tokens a row [B, T]; give the scores of what follows each [B, T, V]."""
        steps = tokens.shape[1]
        places = state.position[:, None] + torch.arange(steps, device=tokens.device)  # [B, T]
        filled = min(state.filled + steps, state.length)
        queries = Layout(places, filled)
        keys = Layout.of(filled, device=tokens.device)
        own = Call(queries, keys)
        cross = Call(queries, Layout.of(state.source_length, state.source_real, tokens.device))
        x = _embed(self.decoder_position, self.target_embedding(tokens), queries)
        for n, (layer, caches) in enumerate(zip(self.decoder, state.layers, strict=True)):
            x = layer(x, None, own, cross, caches, _sinks(state.record, n))
        state.advance(steps)
        return self.output(self.decoder_norm(x, None)), state


class _Nothing(nn.Module):
    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return x


def _embed(positions: nn.ModuleList, x: Tensor, layout: Layout) -> Tensor:
    for position in positions:
        x = position.embed(x, layout)  # type: ignore[operator]
    return x


def _sinks(record: Record | None, layer: int) -> tuple[Sink | None, Sink | None]:
    return (None, None) if record is None else (record.at("decoder", layer), record.at("cross", layer))
