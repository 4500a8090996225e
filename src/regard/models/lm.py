"""The decoder-only language model (GPT): causal self-attention, and logits of the next token.

Its layers are the encoder's, with a causal pattern and a cache. Sizes live in PRESETS, as data.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from regard.config import Presets, at_least, below_one, choice, option
from regard.models import stack
from regard.models.batch import TextBatch
from regard.models.decoders.auxiliary import AuxiliaryOutputs, gradient_only, labelled_states, lowest_predicting_layer
from regard.models.init import INITS
from regard.models.stack import Positions, ProposalsConfig, StackConfig
from regard.models.state import DecoderState
from regard.nn.attention import AttentionConfig
from regard.nn.cache import SegmentMemory
from regard.nn.dropout import DROPOUTS, Dropout
from regard.nn.embedding import Embedding, Output, WordDropout
from regard.nn.feed_forward import Activation
from regard.nn.layers import EncoderLayer, ModuleList
from regard.nn.layout import AttentionContext, Layout
from regard.nn.multi_head import MultiHeadAttention
from regard.nn.pattern import PATTERNS, Causal, Document, Full, Padding, SlidingWindow, parse_pattern
from regard.nn.position import LearnedConfig, LearnedPerLayerConfig, NoPositionConfig, PositionConfig
from regard.nn.record import AttentionRecorder, LayerRecord
from regard.nn.recurrence import DecoderSelfConfig, SelfAttentionConfig


def _gpt2(layers: int, size: int, heads: int) -> dict[str, int | float | str | bool]:
    return {"layers": layers, "size": size, "inner": 4 * size, "heads": heads, "dropout": 0.1}


def _characters(layers: int) -> dict[str, int | float | str | bool]:
    """Al-Rfou 2018, 4: with 256 characters 44 or 235 M parameters in training, 41 or 219 M of the model alone."""
    sizes: dict[str, int | float | str | bool] = {"layers": layers, "size": 512, "inner": 2048, "heads": 2}
    losses = {"layer_losses": True, "targets": 2}
    return {
        **sizes, "activation": "relu", "output": "own", "dropout": 0.0,
        "inner_dropout": 0.55, "position": "learned_per_layer", **losses,
    }  # fmt: skip


PRESETS: Presets = {
    "tiny": _gpt2(4, 128, 4),
    "mini": _gpt2(6, 384, 6),
    "small": _gpt2(12, 768, 12),  # this and the larger ones: Radford 2019, table 2
    "medium": _gpt2(24, 1024, 16),
    "large": _gpt2(36, 1280, 20),
    "xl": _gpt2(48, 1600, 25),
    "char12": _characters(12),
    "char64": _characters(64),
}


@choice(
    "lm", "A7", "p(w_t | w_<t) = softmax(E x_t); x ← x + f(norm(x)), f: causal attention, feed-forward", "Radford 2019"
)
class LanguageModelConfig(StackConfig):
    """A decoder alone, which predicts the next token of a text."""

    presets: ClassVar[Presets] = PRESETS

    preset: str | None = option(None, f"named sizes: {', '.join(PRESETS)}; any key given beside it wins")
    layers: int = option(12, "how many of them")
    size: int = option(768, "D, the width of the model")
    inner: int = option(3072, "width inside the feed-forward network")
    heads: int = option(12, "H; each has size/heads dimensions")
    residual: Literal["post_norm", "pre_norm", "none"] = option(
        "pre_norm", "norm first, the order of 2017, or no residual at all"
    )
    activation: Activation = option("gelu_tanh", "in the feed-forward network; swiglu adds a gate")
    output: Literal["tied", "own"] = option(
        "tied", "words are scored by the embedding's matrix, or by one of their own"
    )
    init: Literal["xavier", "normal", "depth"] = option(
        "depth", "how weights begin: by fan-in and fan-out, N(0, 0.02²), or that with less from each sub-layer"
    )
    scale_embedding: bool = option(False, "multiply embeddings by √size")
    embedding_dropout: float | None = option(None, "on the embeddings; none: as dropout")
    word_dropout: float = option(0.0, "share of the vocabulary whose vectors are nothing, drawn for each batch")
    output_dropout: float = option(0.0, "on the last states, before words are scored")
    dropped: Literal["place", "row"] = option(
        "place",
        "what dropout of features draws for: every place, or a row once, which then lacks the same ones throughout",
    )
    position: Positions = option(LearnedConfig(length=1024), "how order enters; a list is tiled over the layers")
    attention: AttentionConfig = option(AttentionConfig, "the five choices")
    decoder_self: DecoderSelfConfig = option(
        SelfAttentionConfig, "what a layer does with its own past: attention, or a recurrence, which is faster"
    )
    proposals: ProposalsConfig | None = option(None, "heads that score further tokens too, for blockwise decoding")
    memory: int = option(0, "tokens before a block whose states every layer sees too (Transformer-XL); 0: none")
    layer_losses: bool = option(
        False, "in the task lm: layers below the last predict too, layer l of n until l/2n of the training is done"
    )
    targets: int = option(1, "in the task lm: tokens ahead that every position learns to predict; 1: the next alone")
    further_weight: float = option(0.5, "of the loss of each target beyond the next token")

    def __post_init__(self) -> None:
        super().__post_init__()
        below_one(self, "embedding_dropout", "word_dropout", "output_dropout")
        at_least(self, 0, "memory", "further_weight")
        at_least(self, 1, "targets")
        if self.layer_losses and self.norm == "batch":
            raise ValueError("layer_losses needs norm: layer, rms or none, not batch, which would count all layers")
        stack.check_positions(self.position, "decoder", self.attention.sizes(self.size, self.heads))
        stack.check_decoder_self(self.decoder_self, self.attention, self.position, "attention")
        if self.memory:
            self._check_memory()

    @property
    def segment_memory(self) -> int:
        return self.memory

    @property
    def carries(self) -> bool:
        return self.memory > 0

    @property
    def bounded_past(self) -> bool:
        kept = [parse_pattern(self.attention.layer(n).pattern, PATTERNS).retention for n in range(self.layers)]
        bounded = all(retention is not None and not retention.first for retention in kept)
        return bounded and not any(map(_is_absolute, stack.as_list(self.position)))

    @property
    def further_targets(self) -> int:
        return self.targets - 1

    def predicting_layers(self, step: int, steps: int) -> int | None:
        return lowest_predicting_layer(self.layers, step, steps) if self.layer_losses else None

    @property
    def rolls_back(self) -> bool:
        """Whether steps of decoding can be taken back: a recurrence keeps no past."""
        return self.decoder_self.kind == "attention"

    def _check_memory(self) -> None:
        """A remembered state has no position of its own: a block's positions begin where the memory does."""
        if self.decoder_self.kind != "attention":
            raise ValueError(f"memory needs decoder_self: attention, not {self.decoder_self.kind}, which has no keys")
        for position in stack.as_list(self.position):
            if _is_absolute(position):
                raise ValueError(
                    f"memory needs positions that act inside attention, such as transformer_xl or rotary: "
                    f"{position.kind} is part of a state that is remembered, and would be out of date"
                )
        for n in range(self.layers):
            c = self.attention.layer(n)
            if c.compress.kind != "none":
                raise ValueError(f"memory needs compress: none, not {c.compress.kind}")
            parts = parse_pattern(c.pattern, PATTERNS).parts()
            if not all(isinstance(part, Full | SlidingWindow) for part in parts):
                raise ValueError(
                    f"memory needs the pattern full or window, not {c.pattern!r}, which counts from a start"
                )
        if self.norm == "batch":
            raise ValueError("memory needs norm: layer, rms or none, not batch")

    def build_dropout(self, rate: float) -> Dropout:
        return DROPOUTS[self.dropped](rate)

    def check(self, longest: int) -> None:
        """Raise ValueError where the choices cannot serve sequences of this length."""
        self.attention.check("decoder", longest, self.layers)
        stack.check_max_length(self.position, "position", longest, "task.length, or task.context")

    def build(self, entries: int) -> "LanguageModel":
        return LanguageModel(self, entries)

    def body(self, entries: int) -> "LanguageModelBody":
        return LanguageModelBody(self, entries)


def _is_absolute(position: PositionConfig) -> bool:
    """Whether it joins the states, so that more than distances matter."""
    joins = position.embeds and not isinstance(position, NoPositionConfig)
    return joins or isinstance(position, LearnedPerLayerConfig)


class LanguageModel(nn.Module):
    def __init__(self, config: LanguageModelConfig, entries: int) -> None:
        super().__init__()
        c, self.config = config, config
        self.embedding = Embedding(entries, c.size, c.scale_embedding)
        self.output = Output(self.embedding if c.output == "tied" else None, entries, c.size)
        self.word_dropout = WordDropout(c.word_dropout)
        self.dropout = c.build_dropout(c.dropout if c.embedding_dropout is None else c.embedding_dropout)
        self.output_dropout = c.build_dropout(c.output_dropout)
        self.position = stack.build_positions(c.position, c.attention.sizes(c.size, c.heads), "decoder", c.layers)
        causal = Causal() & Padding() & Document()
        attentions = c.build_decoder_self(c.decoder_self, c.attention, c.layers, self.position, causal)
        self.layers = ModuleList(EncoderLayer(own, c.build_feed_forward(), c.build_residuals(2)) for own in attentions)
        self.norm = c.build_final_norm()
        self.auxiliary: AuxiliaryOutputs | None = None
        if c.layer_losses or c.targets > 1:
            lowest = 1 if c.layer_losses else c.layers
            self.auxiliary = AuxiliaryOutputs(lowest, c.layers, c.targets, c.further_weight, entries, c.size)
        self.proposals = None if c.proposals is None else c.proposals.build(c.size, c.inner)
        INITS[c.init](self)
        stack.freeze_but_proposals(self, self.proposals)

    @classmethod
    def from_preset(cls, preset: str, vocabulary: int, **keys: object) -> "LanguageModel":
        """A new model by the name of its sizes; further keys are those of `model:` in a recipe."""
        return cls(stack.config_from_preset(LanguageModelConfig, preset, keys), vocabulary)

    @property
    def longest(self) -> int | None:
        """How many positions the model can tell apart, where there is a limit."""
        return stack.max_length(self.position)

    # --- the whole sequence at once: training, scoring ---------------------------------------------------------

    def hidden(
        self,
        batch: TextBatch,
        record: AttentionRecorder | None = None,
        memories: Sequence[SegmentMemory] | None = None,
        states: dict[int, Tensor] | None = None,
    ) -> Tensor:
        """Hidden states [B, T, D] of all positions at once; none sees a later one.

        With `memories`, one a layer, also what those hold of the blocks before; they then hold this one. `states`
        receives those of the layers that predict, by their numbers from 1.
        """
        layout = batch.layout(padding=self.config.norm == "batch")  # else causality hides the padding
        context = memories[0].context(batch.ids.shape[1]) if memories else AttentionContext(layout, layout)
        x = self.word_dropout(self.embedding(batch.ids), batch.ids, len(self.embedding.weight), batch.document)
        x = self.dropout(stack.embed_positions(self.position, x, layout))
        for n, layer in enumerate(self.layers):
            x = layer(x, context, _record(record, n, layer), memories[n] if memories else None)
            if states is not None and batch.predicting is not None and batch.predicting <= n + 1 < len(self.layers):
                states[n + 1] = self.output_dropout(self.norm(x, layout.real))
        x = self.output_dropout(self.norm(x, layout.real))
        if states is not None:
            states[len(self.layers)] = x
        return x

    def forward(
        self,
        batch: TextBatch,
        record: AttentionRecorder | None = None,
        smoothing: float | None = None,
        carry: dict[str, Tensor] | None = None,
    ) -> Any:
        """Logits at `batch.label_positions` [N, V], in the order of `batch.labels`; without labels, all [B, T, V].

        With `smoothing`, the loss of those labels, summed, instead: the logits are then never kept. With a `carry`,
        empty at first, that and the carry of the next batch, whose rows continue these.
        """
        memories = None
        if carry is not None:
            if batch.document is not None:
                raise ValueError("a memory passes from document to document: a batch with a carry has no documents")
            carry = carry or self.empty_carry(len(batch.ids), self.config.memory)
            memories = [SegmentMemory(carry[f"layer{n}"], carry["real"]) for n in range(len(self.layers))]
        states: dict[int, Tensor] | None = {} if self.auxiliary and self.training and smoothing is not None else None
        x = self.hidden(batch, record, memories, states)  # [B, T, D]
        if batch.label_positions is not None:
            x = labelled_states(x, batch.label_positions)
        if self.training and self.proposals is not None and smoothing is not None and batch.labels is not None:
            out = self.proposals.loss(self.output, x, batch.labels, batch.label_places(), smoothing)
        else:
            out = self.output.at(x, batch.labels, smoothing)
        if states is not None and self.auxiliary and smoothing is not None:
            out = out + gradient_only(self.auxiliary(states, batch, smoothing))
        if memories is None:
            return out
        return out, {f"layer{n}": memory.states for n, memory in enumerate(memories)} | {"real": memories[0].real}

    def empty_carry(self, rows: int, memory: int) -> dict[str, Tensor]:
        """The carry of the first batch, with room for `memory` tokens a row."""
        empty = SegmentMemory.empty(rows, memory, self.embedding.weight)
        return {f"layer{n}": empty.states for n in range(len(self.layers))} | {"real": empty.real}

    # --- step by step: decoding --------------------------------------------------------------------------------

    def start(
        self, batch: TextBatch, length: int, record: AttentionRecorder | None = None, *, bounded: bool = True
    ) -> DecoderState:
        """Read the prompts, all but the last token of each, which is the first that a search reads.

        The state then has room for `length` more tokens a row. `bounded`: its caches keep what may still be seen.
        """
        prompts = batch.ids[:, :-1]
        room = prompts.shape[1] + length
        position = torch.zeros(len(prompts), dtype=torch.long, device=batch.device)
        weight = self.embedding.weight
        bounded = bounded and record is None  # weights are recorded for all of the past
        caches = [(layer.attention.empty_cache(position, room, weight, bounded),) for layer in self.layers]
        state = DecoderState(position, caches, None, 0, room, record=record)
        if prompts.shape[1]:
            if record is not None and batch.real is not None:
                raise ValueError("prompts whose attention is recorded must be equally long")
            layout = Layout.of(prompts.shape[1], device=batch.device)  # as in training, for the same backends
            with state.reading_prompts((batch.lengths() - 1).clamp(min=0)):
                self._read(prompts, state, AttentionContext(layout, layout))
        return state

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read T more tokens a row [B, T]; give the logits of the token after each [B, T, V]."""
        states, state = self.read(tokens, state)
        return self.output(states), state

    def read(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read T more tokens a row [B, T]; give what `output` scores the next ones by [B, T, D]."""
        return self._read(tokens, state, state.self_context(tokens.shape[1])), state

    def first_layers(self, count: int) -> "LanguageModel":
        """The model of its first layers, with the same weights."""
        return stack.with_layers(self, "layers", count)

    def _read(self, tokens: Tensor, state: DecoderState, context: AttentionContext) -> Tensor:
        record = state.record
        x = stack.embed_positions(self.position, self.embedding(tokens), context.queries)
        for n, (layer, (cache,)) in enumerate(zip(self.layers, state.layers, strict=True)):
            x = layer(x, context, _record(record, n, layer), cache)
        state.advance(tokens.shape[1])
        return self.norm(x)


def _record(record: AttentionRecorder | None, n: int, layer: EncoderLayer) -> LayerRecord | None:
    """Where layer n puts its weights; a recurrence has none."""
    stack.check_recorded(record, [layer])
    return record.at("decoder", n) if record and isinstance(layer.attention, MultiHeadAttention) else None


# --- fine-tuning ---------------------------------------------------------------------------------------------------


class LanguageModelBody(LanguageModel):
    """A language model under a head, which reads its states; it still scores words, for an auxiliary loss."""

    forward = LanguageModel.hidden  # type: ignore[assignment]

    def __init__(self, config: LanguageModelConfig, entries: int) -> None:
        super().__init__(config, entries)
        if self.auxiliary is not None:
            self.auxiliary.requires_grad_(False)  # which are part of what was trained, and of no use here

    @property
    def capturable(self) -> bool:
        """Whether padded batches of one shape take the same operations, as a CUDA graph needs."""
        return stack.capturable(self, self.layers)

    def pooler(self) -> "ExtractPooler":
        return ExtractPooler()

    def parts(self) -> list[list[nn.Module]]:
        """Its layers from the top down, for layer-wise learning rates."""
        return [[layer] for layer in reversed(self.layers)]

    def next_token_loss(self, hidden: Tensor, batch: TextBatch) -> Tensor:
        """−log p(w_t | w_<t), its mean over the batch: special tokens count, padding does not."""
        labels, x = batch.ids[:, 1:], hidden[:, :-1]
        real = torch.ones_like(labels, dtype=torch.bool) if batch.real is None else batch.real[:, 1:]
        return self.output.at(x[real], labels[real], 0.0) / real.sum()


class ExtractPooler(nn.Module):
    """The state at a row's last token, which has seen all others (Radford 2018, 3.2)."""

    def forward(self, hidden: Tensor, real: Tensor | None = None) -> Tensor:
        if real is None:
            return hidden[:, -1]
        return hidden[torch.arange(len(hidden), device=hidden.device), real.sum(1) - 1]  # [B, D]
