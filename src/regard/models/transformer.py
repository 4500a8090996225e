"""The Transformer of "Attention Is All You Need" (Vaswani 2017): encoder, decoder, and stepwise decoding.

Sizes live in PRESETS, as data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from regard.config import Presets, at_least, choice, option
from regard.errors import RegardError
from regard.models import stack
from regard.models.batch import PairBatch
from regard.models.init import INITS
from regard.models.stack import Positions, ProposalsConfig, StackConfig
from regard.models.state import DecoderState
from regard.nn import dispatch
from regard.nn.attention import AttentionConfig
from regard.nn.dropout import Dropout
from regard.nn.embedding import SHARE, BiasedOutput, Output, Share, shared_embeddings
from regard.nn.layers import DecoderLayer, EncoderLayer, ModuleList
from regard.nn.layout import AttentionContext, Layout
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.pattern import Causal, Document, Padding
from regard.nn.position import Position, PositionConfig, SinusoidalConfig
from regard.nn.record import ROLES, AttentionRecorder, LayerRecord
from regard.nn.recurrence import DecoderSelfConfig, SelfAttentionConfig

Encode = Callable[[PairBatch, AttentionRecorder | None], tuple[Tensor, Layout]]
ENCODE_TOKENS = {"cpu": 512}  # of sources, longest first, in one forward pass: more would be more padding

PRESETS: Presets = {
    "tiny": {"layers": 4, "size": 128, "inner": 256, "heads": 4, "dropout": 0.3},
    "small": {"layers": 6, "size": 256, "inner": 1024, "heads": 4, "dropout": 0.2},
    "base": {"layers": 6, "size": 512, "inner": 2048, "heads": 8, "dropout": 0.1},
    "big": {"layers": 6, "size": 1024, "inner": 4096, "heads": 16, "dropout": 0.3},
}


@dataclass(frozen=True)
class AttentionsConfig:
    """One block of choices for each of the three roles; a flat block means all three."""

    encoder: AttentionConfig = option(AttentionConfig, "self-attention of the source")
    decoder: AttentionConfig = option(AttentionConfig, "self-attention of the target, causal")
    cross: AttentionConfig = option(AttentionConfig, "attention of the target to the source")

    def of(self, role: str) -> AttentionConfig:
        return {"encoder": self.encoder, "decoder": self.decoder, "cross": self.cross}[role]

    @classmethod
    def expand(cls, value: dict[str, Any]) -> dict[str, object]:
        common = {k: v for k, v in value.items() if k not in ROLES}
        return {role: {**common, **(value.get(role) or {})} for role in ROLES} if common else value


@dataclass(frozen=True)
class PositionsConfig:
    """Positions of the source and of the target; one choice alone means both. A list is tiled over the layers."""

    encoder: Positions = option(SinusoidalConfig, "of the source")
    decoder: Positions = option(SinusoidalConfig, "of the target")

    @classmethod
    def shorthand(cls, value: object) -> dict[str, object]:
        return {"encoder": value, "decoder": value}

    @classmethod
    def expand(cls, value: dict[str, Any]) -> dict[str, object]:
        common = {k: v for k, v in value.items() if k not in ("encoder", "decoder")}
        return {role: cls._merged(common, value.get(role)) for role in ("encoder", "decoder")} if common else value

    @staticmethod
    def _merged(common: dict[str, Any], own: Any) -> Any:
        """What a role has: the keys for both, and its own, which win; another kind of its own takes none of them."""
        own = {} if own is None else {"kind": own} if isinstance(own, str) else own
        if isinstance(own, list):
            return [PositionsConfig._merged(common, each) for each in own]
        same = common.get("kind", own.get("kind")) == own.get("kind", common.get("kind"))
        return {**common, **own} if same else own

    def of(self, role: str) -> list[PositionConfig]:
        return stack.as_list(self.encoder if role == "encoder" else self.decoder)


@choice("transformer", "A1", "x ← norm(x + f(x)), f: attention, attention to the source, feed-forward", "Vaswani 2017")
class TransformerConfig(StackConfig):
    """Encoder and decoder of self-attention and feed-forward layers."""

    presets: ClassVar[Presets] = PRESETS

    preset: str | None = option(None, f"named sizes: {', '.join(PRESETS)}; any key given beside it wins")
    layers: int = option(6, "of the encoder, and of the decoder unless decoder_layers says otherwise")
    decoder_layers: int | None = option(None, "of the decoder; none: as many as the encoder has")
    decoder_self: DecoderSelfConfig = option(
        SelfAttentionConfig, "what a decoder layer does with its own past: attention, or a recurrence, which is faster"
    )
    share: Share = option("all", SHARE)
    output_bias: bool = option(False, "a learned number for every word, added to its score")
    init: Literal["xavier", "normal"] = option("normal", "how weights begin: by fan-in and fan-out, or N(0, 0.02²)")
    scale_embedding: bool = option(True, "multiply embeddings by √size")
    position: PositionsConfig = option(PositionsConfig, "how order enters: one choice, or encoder and decoder apart")
    attention: AttentionsConfig = option(AttentionsConfig, "the five choices, for encoder, decoder and cross")
    proposals: ProposalsConfig | None = option(None, "heads that score further tokens too, for blockwise decoding")

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 1, "decoder_layers")
        for role in ROLES:
            sizes = self.attention.of(role).sizes(self.size, self.heads)
            if role != "cross":
                stack.check_positions(self.position.of(role), role, sizes)
        choices, positions = self.attention.decoder, self.position.decoder
        stack.check_decoder_self(self.decoder_self, choices, positions, "attention.decoder")

    @property
    def rolls_back(self) -> bool:
        """Whether steps of decoding can be taken back: a recurrence keeps no past."""
        return self.decoder_self.kind == "attention"

    def check(self, source: int, target: int) -> None:
        """Raise ValueError where the choices cannot serve sequences of this length."""
        for role, longest in (("encoder", source), ("decoder", target), ("cross", source)):
            layers = self.layers if role == "encoder" else self.decoder_layers or self.layers
            self.attention.of(role).check(role, longest, layers)
        for role, longest in (("encoder", source), ("decoder", target)):
            stack.check_max_length(self.position.of(role), f"position.{role}", longest)

    def build(self, source_entries: int, target_entries: int) -> "Transformer":
        return Transformer(self, source_entries, target_entries)


class Transformer(nn.Module):
    def __init__(self, config: TransformerConfig, source_entries: int, target_entries: int) -> None:
        super().__init__()
        c, self.config = config, config
        self.source_embedding, self.target_embedding, tied = shared_embeddings(
            c.share, source_entries, target_entries, c.size, c.scale_embedding
        )
        self.output = (BiasedOutput if c.output_bias else Output)(tied, target_entries, c.size)
        self.dropout = Dropout(c.dropout)
        self.encoder_position = self._positions("encoder")
        self.decoder_position = self._positions("decoder")
        no_position = ModuleList([Position()])  # source and target positions are not comparable
        visible = Padding() & Document()
        causal, depth = Causal() & visible, c.decoder_layers or c.layers
        encoder = c.build_attentions(c.attention.encoder, c.layers, self.encoder_position, visible)
        decoder = c.build_decoder_self(c.decoder_self, c.attention.decoder, depth, self.decoder_position, causal)
        cross = c.build_attentions(c.attention.cross, depth, no_position, visible)
        self.encoder = ModuleList(EncoderLayer(own, c.build_feed_forward(), c.build_residuals(2)) for own in encoder)
        self.decoder = ModuleList(
            DecoderLayer(own, other, c.build_feed_forward(), c.build_residuals(3))
            for own, other in zip(decoder, cross, strict=True)
        )
        self.encoder_norm, self.decoder_norm = c.build_final_norm(), c.build_final_norm()
        self.proposals = None if c.proposals is None else c.proposals.build(c.size, c.inner)
        INITS[c.init](self)
        stack.freeze_but_proposals(self, self.proposals)

    @classmethod
    def from_preset(
        cls, preset: str, vocabulary: int, target_vocabulary: int | None = None, **keys: object
    ) -> "Transformer":
        """A new model by the name of its sizes; further keys are those of `model:` in a recipe."""
        if target_vocabulary not in (None, vocabulary):
            keys = {"share": "target", **keys}  # one table cannot serve both
        config = stack.config_from_preset(TransformerConfig, preset, keys)
        return cls(config, vocabulary, target_vocabulary or vocabulary)

    @classmethod
    def tiny(cls, vocabulary: int, target_vocabulary: int | None = None, **keys: object) -> "Transformer":
        """4 layers of 128, 4 heads."""
        return cls.from_preset("tiny", vocabulary, target_vocabulary, **keys)

    @classmethod
    def base(cls, vocabulary: int, target_vocabulary: int | None = None, **keys: object) -> "Transformer":
        """6 layers of 512, 8 heads (Vaswani 2017, table 3)."""
        return cls.from_preset("base", vocabulary, target_vocabulary, **keys)

    @classmethod
    def big(cls, vocabulary: int, target_vocabulary: int | None = None, **keys: object) -> "Transformer":
        """6 layers of 1,024, 16 heads (Vaswani 2017, table 3)."""
        return cls.from_preset("big", vocabulary, target_vocabulary, **keys)

    def _positions(self, role: str) -> ModuleList[Position]:
        c = self.config
        sizes = c.attention.of(role).sizes(c.size, c.heads)
        layers = c.layers if role == "encoder" else c.decoder_layers or c.layers
        return stack.build_positions(c.position.of(role), sizes, role, layers)

    @property
    def longest(self) -> int | None:
        """How many target positions the model can tell apart, where there is a limit."""
        return stack.max_length(self.decoder_position)

    # --- the whole sequence at once: training, scoring ---------------------------------------------------------

    def encode(self, batch: PairBatch, record: AttentionRecorder | None = None) -> tuple[Tensor, Layout]:
        """The source ids [B, S] as memory [B, S, D], with its layout."""
        layout = Layout.of(batch.source.shape[1], batch.source_real, batch.source.device, batch.tree)
        return self._encode(batch.source, layout, record), layout

    def _encode(self, ids: Tensor, layout: Layout, record: AttentionRecorder | None = None) -> Tensor:
        context = AttentionContext(layout, layout)
        x = self.dropout(stack.embed_positions(self.encoder_position, self.source_embedding(ids), layout))
        for n, layer in enumerate(self.encoder):
            x = layer(x, context, record and record.at("encoder", n))
        return self.encoder_norm(x, layout.real)

    def decode(
        self, target: Tensor, layout: Layout, memory: Tensor, source: Layout, record: AttentionRecorder | None = None
    ) -> Tensor:
        """Hidden states [B, T, D] of all target positions at once; none sees a later one."""
        stack.check_recorded(record, self.decoder)
        self_context, cross_context = AttentionContext(layout, layout), AttentionContext(layout, source)
        x = self.dropout(stack.embed_positions(self.decoder_position, self.target_embedding(target), layout))
        for n, layer in enumerate(self.decoder):
            x = layer(x, memory, self_context, cross_context, records=_records(record, n, layer))
        return self.decoder_norm(x, layout.real)

    def forward(
        self, batch: PairBatch, record: AttentionRecorder | None = None, smoothing: float | None = None
    ) -> Tensor:
        """Logits at every real target position [N, V], in the order of `batch.labels`; without labels, all [B, T, V].

        With `smoothing`, the loss of those labels, summed, instead: the logits are then never kept.
        """
        if record is None and self.takes_packed(batch):
            assert batch.packed is not None
            source, target = batch.packed
            memory = self._encode(source.ids, source.layout)
            hidden = self.decode(target.ids, target.layout, memory, source.layout)[0]  # [N and padding, D]
            if smoothing is None and batch.labels is not None:
                hidden = hidden[: len(batch.labels)]
            return self.output.at(hidden, target.labels, smoothing)
        if batch.target is None:
            raise RegardError("the decoder has nothing to read; write PairBatch(source, target=ids)")
        memory, layout = self.encode(batch, record)
        labelled = batch.label_positions is not None
        real = (
            batch.target_real if labelled and self.config.norm == "batch" else None
        )  # else causality hides the padding
        target_layout = Layout.of(batch.target.shape[1], real, batch.device)
        hidden = self.decode(batch.target, target_layout, memory, layout, record)  # [B, T, D]
        if labelled:
            hidden = hidden.flatten(0, 1)[batch.label_positions]
        if self.training and self.proposals is not None and smoothing is not None and batch.labels is not None:
            return self.proposals.loss(self.output, hidden, batch.labels, batch.label_places(), smoothing)
        return self.output.at(hidden, batch.labels, smoothing)

    def takes_packed(self, batch: PairBatch) -> bool:
        """Whether this batch is computed as packed sequences, without padding."""
        fits = dispatch.fast("packed_fits", self.target_embedding.weight)
        if fits is None or batch.packed is None or batch.tree is not None or self.packing_refusal is not None:
            return False
        rooms = map(stack.max_length, (self.encoder_position, self.decoder_position))  # padding has positions too
        return all(
            fits(side.layout) and (room is None or side.layout.end <= room)
            for side, room in zip(batch.packed, rooms, strict=True)
        )

    @cached_property
    def packing_refusal(self) -> str | None:
        """Why no batch is computed as packed sequences, or None."""
        if self.config.norm == "batch":
            return "BatchNorm would count padding"
        if self.proposals is not None:
            return "proposal heads look ahead in rows"
        layers = [layer for layer in self.modules() if isinstance(layer, MultiHeadAttention)]
        reason = dispatch.registered("packed_reason")
        return next((why for layer in layers if (why := reason(layer)) is not None), None)

    # --- step by step: decoding --------------------------------------------------------------------------------

    def start(
        self,
        batch: PairBatch,
        length: int,
        record: AttentionRecorder | None = None,
        encode: Encode | None = None,
        *,
        bounded: bool = True,
    ) -> DecoderState:
        """Encode the source, by `encode` if given; the state has room for `length` target tokens a row.

        `bounded`: its caches keep what may still be seen.
        """
        stack.check_recorded(record, self.decoder)
        parts = [batch] if record is not None else batch.split_sources(ENCODE_TOKENS.get(batch.device.type))
        if len(parts) > 1:
            states = [self.start(part, length, encode=encode, bounded=bounded) for part in parts]
            return DecoderState.concatenate(states)
        memory, layout = (encode or self.encode)(batch, record)
        position = torch.zeros(len(memory), dtype=torch.long, device=memory.device)
        caches = [layer.caches(memory, position, length, bounded and record is None) for layer in self.decoder]
        return DecoderState(position, caches, layout.real, layout.length, length, record=record)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read T more tokens a row [B, T]; give the logits of the token after each [B, T, V]."""
        states, state = self.read(tokens, state)
        return self.output(states), state

    def read(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read T more tokens a row [B, T]; give what `output` scores the next ones by [B, T, D]."""
        steps = tokens.shape[1]
        self_context, cross_context = state.self_context(steps), state.cross_context(steps)
        x = stack.embed_positions(self.decoder_position, self.target_embedding(tokens), self_context.queries)
        for n, (layer, caches) in enumerate(zip(self.decoder, state.layers, strict=True)):
            x = layer(x, None, self_context, cross_context, caches, _records(state.record, n, layer))
        state.advance(steps)
        return self.decoder_norm(x, None), state

    def first_layers(self, count: int) -> "Transformer":
        """The model of the decoder's first layers, with the same weights."""
        return stack.with_layers(self, "decoder", count)


def _records(
    record: AttentionRecorder | None, n: int, layer: DecoderLayer
) -> tuple[LayerRecord | None, LayerRecord | None]:
    """Where layer n puts the weights of its attentions; a recurrence has none."""
    if record is None:
        return None, None
    own = record.at("decoder", n) if isinstance(layer.attention, MultiHeadAttention) else None
    return own, record.at("cross", n)
