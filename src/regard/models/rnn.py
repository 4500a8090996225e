"""Recurrent encoder-decoder with attention: Bahdanau 2014 and Luong 2015, and what lies between them.

The decoders are in `rnn_decoder.py`, the cells in `recurrent.py`; scores, patterns and normalisers are `nn`'s own.
"""

from dataclasses import field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from regard.config import Presets, at_least, below_one, choice, option
from regard.models.batch import PairBatch
from regard.models.contract import ModelConfig
from regard.models.init import INITS
from regard.models.recurrent import Recurrent
from regard.models.rnn_decoder import CONTEXT_JOINS, BahdanauDecoder, InputFeedingDecoder, LuongDecoder, RnnDecoder
from regard.models.state import DecoderState
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.cache import StateTensors
from regard.nn.dropout import Dropout
from regard.nn.embedding import SHARE, Output, Share, shared_embeddings
from regard.nn.pattern import Padding
from regard.nn.position import Position
from regard.nn.record import AttentionRecorder
from regard.nn.score import AdditiveConfig
from regard.nn.sizes import Sizes

PRESETS: Presets = {
    "bahdanau": {"attends": "previous", "cell": "gru", "bidirectional": True},
    "luong": {"attends": "current", "cell": "lstm", "bidirectional": False, "layers": 2, "input_feeding": True},
}


@choice("rnn", "A2, A3", "s_i = f(s_{i−1}, y_{i−1}, c_i), c_i = Σ_j α_ij h_j", "Bahdanau 2014; Luong 2015")
class RnnConfig(ModelConfig):
    """A recurrent encoder and decoder, with one attention to the source."""

    presets: ClassVar[Presets] = PRESETS

    preset: str | None = option(None, f"named choices: {', '.join(PRESETS)}; any key given beside it wins")
    attends: Literal["previous", "current"] = option(
        "previous", "which decoder state asks: before its step (Bahdanau), or after it (Luong)"
    )
    cell: Literal["gru", "lstm"] = option("gru", "of encoder and decoder")
    layers: int = option(1, "of the encoder, and of the decoder")
    size: int = option(
        256, "of the decoder's states, and of the encoder's (of each direction, where attends: previous)"
    )
    embedding: int | None = option(None, "of word vectors, and of what words are chosen from; none: size")
    bidirectional: bool = option(True, "the encoder reads both ways")
    input_feeding: bool = option(False, "what the last word was chosen from enters with it (current only)")
    join: Literal["concat", "sum", "gate"] = option(
        "concat", "how context and state become what words are chosen from: side by side, added, or a share of each"
    )
    dropout: float = option(0.0, "on word vectors, between layers and before the output")
    share: Share = option("all", SHARE)
    init: Literal["xavier", "normal"] = option(
        "xavier", "how weights begin: by fan-in and fan-out, recurrent ones orthogonal; or N(0, 0.02²)"
    )
    attention: AttentionConfig = field(
        default_factory=lambda: AttentionConfig(score=AdditiveConfig()),
        metadata={"help": "score (by default additive where attends: previous, else general), pattern and normalise"},
    )

    @classmethod
    def expand(cls, value: dict[str, Any]) -> dict[str, object]:
        """A score that is not chosen is the paper's."""
        full = {**PRESETS.get(str(value.get("preset")), {}), **value}
        previous = {"kind": "additive", "size": full.get("size", cls.size)}
        score = "general" if full.get("attends") == "current" else previous
        given = value.get("attention") or {}
        return {**value, "attention": {"score": score, **given}} if isinstance(given, dict) else value

    def __post_init__(self) -> None:
        at_least(self, 1, "layers", "size", "embedding")
        below_one(self, "dropout")
        if self.attends == "current" and self.size % self.directions:
            raise ValueError(f"two directions cannot share the size {self.size}; make it even")
        if self.input_feeding and self.attends == "previous":
            raise ValueError("input_feeding belongs to attends: current; with previous the context enters instead")
        if CONTEXT_JOINS[self.join].equal_widths and self.memory != self.size:
            raise ValueError(
                f"join: {self.join} needs a context as wide as the state, and they are {self.memory} and {self.size}; "
                "write bidirectional: false, or join: concat"
            )
        self._check_attention()

    def _check_attention(self) -> None:
        a = self.attention
        if keys := a.projection_keys():
            raise ValueError(f"attention.{keys[0]} means nothing here: encoder states are keys and values")
        for name in ("score", "pattern", "normalise", "compress"):
            if isinstance(choice := vars(a)[name], list) and len(choice) > 1:
                raise ValueError(f"attention.{name} is a list, but there is only one attention; name one choice")
        one = a.layer(0)
        if one.compress.kind != "none":
            raise ValueError("attention.compress must be none: encoder states are not shortened")
        with torch.device("meta"):
            score = one.score.build(self.sizes, self.size)
        if score.query_gain != 1.0:
            raise ValueError("attention.score.init: compensated needs a query projection, which is not here")

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def direction(self) -> int:
        """Width of a direction: the decoder's (Bahdanau 2014), or a share of it where the decoder goes on from all."""
        return self.size if self.attends == "previous" else self.size // self.directions

    @property
    def memory(self) -> int:
        """M, the width of what is attended to."""
        return self.directions * self.direction

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.size, 1, self.memory, self.memory)

    def check(self, source: int, target: int) -> None:
        """Raise ValueError where the choices cannot serve a source of this length."""
        self.attention.check("cross", source, 1)

    def build(self, source_entries: int, target_entries: int) -> "Rnn":
        return Rnn(self, source_entries, target_entries)

    def build_decoder(self) -> RnnDecoder:
        words = self.embedding or self.size
        attention = Attention(self.sizes, self.attention, Position(), Padding(), d_q=self.size)
        beside = {"previous": self.memory, "current": words if self.input_feeding else 0}[self.attends]
        rnn = Recurrent(self.cell, words + beside, self.size, self.layers, self.dropout)
        join = CONTEXT_JOINS[self.join](self.memory, self.size)
        if self.attends == "previous":
            return BahdanauDecoder(rnn, attention, words, join, self.direction)
        return (InputFeedingDecoder if self.input_feeding else LuongDecoder)(rnn, attention, words, join)


class Rnn(nn.Module):
    longest: int | None = None  # recurrence has no limit

    def __init__(self, config: RnnConfig, source_entries: int, target_entries: int) -> None:
        super().__init__()
        c, self.config = config, config
        words = c.embedding or c.size
        self.source_embedding, self.target_embedding, tied = shared_embeddings(
            c.share, source_entries, target_entries, words
        )
        self.output = Output(tied, target_entries, words)
        self.dropout = Dropout(c.dropout)
        self.encoder = Recurrent(c.cell, words, c.direction, c.layers, c.dropout, c.directions)
        self.decoder = c.build_decoder()
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, Recurrent):
                module.reset_parameters()
        INITS[c.init](self)

    def forward(
        self, batch: PairBatch, record: AttentionRecorder | None = None, smoothing: float | None = None
    ) -> Tensor:
        """Logits at every real target position [N, V], in the order of `batch.labels`.

        With `smoothing`, the loss of those labels, summed, instead: the logits are then never kept.
        """
        assert batch.target is not None
        assert batch.label_positions is not None
        read = self._read(batch.target, self.start(batch, batch.target.shape[1], record))  # [B, T, E]
        return self.output.at(self.dropout(read.flatten(0, 1)[batch.label_positions]), batch.labels, smoothing)

    def start(self, batch: PairBatch, length: int, record: AttentionRecorder | None = None) -> DecoderState:
        """Encode the source; the state has room for `length` target tokens a row."""
        x = self.dropout(self.source_embedding(batch.source))  # [B, S, E]
        memory, ended = self.encoder.read(x, batch.source_real)  # [B, S, M]
        values = memory[:, None]  # [B, 1, S, M]: one head
        position = torch.zeros(len(memory), dtype=torch.long, device=memory.device)
        keys = self.decoder.attention.prepare_keys(values)
        kept = StateTensors(
            {"keys": keys, "values": values, **self.decoder.begin(ended)}, frozenset({"keys", "values"})
        )
        return DecoderState(position, [(kept,)], batch.source_real, memory.shape[1], length, record=record)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read T more tokens a row [B, T]; give the logits of the token after each [B, T, V]."""
        return self.output(self._read(tokens, state)), state

    def _read(self, tokens: Tensor, state: DecoderState) -> Tensor:
        """The decoder's output after each of the tokens [B, T, E]."""
        steps, ((kept,),) = tokens.shape[1], state.layers
        context = state.cross_context(steps)
        record = state.record and state.record.at("cross", 0)
        x = self.dropout(self.target_embedding(tokens))
        out = self.decoder(x, context, kept, record)
        state.advance(steps)
        return out
