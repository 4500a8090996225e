"""Convolutional sequence to sequence (Gehring 2017): gated convolutions, and attention in every decoder layer.

The encoder is a choice too: gated as in the paper, or plain windows of words. Sizes live in PRESETS, as data.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Choice, Presets, at_least, below_one, choice, choices, option
from regard.models.batch import PairBatch
from regard.models.contract import ModelConfig
from regard.models.init import INITS
from regard.models.stack import check_max_length
from regard.models.state import DecoderState
from regard.nn.attention import Attention, AttentionConfig
from regard.nn.cache import CrossKVCache, StateTensors
from regard.nn.convolution import Convolution, init_keep_variance, scale_gradient, scaled_sum
from regard.nn.dropout import Dropout
from regard.nn.embedding import SHARE, Output, Share, shared_embeddings
from regard.nn.feed_forward import ACTIVATIONS
from regard.nn.layers import ModuleList
from regard.nn.layout import AttentionContext, Layout
from regard.nn.pattern import Document, Padding
from regard.nn.position import LearnedConfig, Position, PositionConfig
from regard.nn.record import AttentionRecorder, LayerRecord
from regard.nn.score import DotConfig, ScoreConfig
from regard.nn.sizes import Sizes

PRESETS: Presets = {
    "convs2s": {"layers": 4, "size": 256, "kernel": 3, "dropout": 0.1},
    "paper": {"layers": 20, "size": 512, "kernel": 3, "dropout": 0.1},  # English→Romanian, Gehring 2017, 4.1
}


# --- one layer -----------------------------------------------------------------------------------------------------


class GatedConvolution(nn.Module):
    """(v(W [window] + b) + x) · √½, where v is the gate a ⊙ σ(b) of the two halves (Gehring 2017, 3.2)."""

    def __init__(self, size: int, kernel: int, dropout: float) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.convolution = Convolution(size, 2 * size, kernel, gain=4 * (1 - dropout), parts=2)

    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        return scaled_sum(F.glu(self.convolution.centred(self.dropout(x), real), -1), x)  # [B, S, D]


class WindowConvolution(nn.Module):
    """f(W [window] + b): no gate, no residual."""

    def __init__(self, size: int, kernel: int, dropout: float, activation: str) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.convolution = Convolution(size, size, kernel, gain=2 * (1 - dropout))  # half of a ReLU's input is lost
        self.activation = ACTIVATIONS[activation]()

    def forward(self, x: Tensor, real: Tensor | None) -> Tensor:
        return self.activation(self.convolution.centred(self.dropout(x), real))  # [B, S, D]


class ConvEncoderConfig(Choice, slot="encoder"):
    """The layers of a convolutional encoder."""

    must_define = ("build",)

    def build(self, size: int, kernel: int, dropout: float) -> nn.Module:
        raise NotImplementedError


@choice("gated", "A5", "x_i ← (a ⊙ σ(b) + x_i) · √½, [a; b] = W [x_{i−k/2}; …; x_{i+k/2}] + c", "Gehring 2017, 3.2")
class GatedConfig(ConvEncoderConfig):
    """Gated convolutions inside residuals."""

    def build(self, size: int, kernel: int, dropout: float) -> nn.Module:
        return GatedConvolution(size, kernel, dropout)


@choice("window", "A4", "x_i ← f(W [x_{i−k/2}; …; x_{i+k/2}] + b)", "Collobert 2011, 3.3")
class WindowConfig(ConvEncoderConfig):
    """Plain windows of words; each layer lets a word see (kernel−1)/2 words further on both sides."""

    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] = option("relu", "f, after every window")

    def build(self, size: int, kernel: int, dropout: float) -> nn.Module:
        return WindowConvolution(size, kernel, dropout, self.activation)


class ConvDecoderLayer(nn.Module):
    """A causal gated convolution, then attention to the source."""

    def __init__(self, size: int, kernel: int, dropout: float, attention: Attention) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.convolution = Convolution(size, 2 * size, kernel, gain=4 * (1 - dropout), parts=2)
        self.query = Convolution(size, size, 1)
        self.attention = attention

    def forward(
        self,
        x: Tensor,
        embedded: Tensor,
        source: tuple[Tensor, Tensor],
        context: AttentionContext,
        past: Tensor | None = None,
        record: LayerRecord | None = None,
    ) -> tuple[Tensor, Tensor]:
        """x [B, T, D], the target's embeddings [B, T, D], keys and values of the source; also gives the new past."""
        y, past = self.convolution.causal(self.dropout(x), past)
        h = scaled_sum(F.glu(y, -1), x)
        d = scaled_sum(self.query(h), embedded)  # d_i = W h_i + b + g_i (Gehring 2017, eq. 1)
        c = self.attention.attend(d[:, None], *source, context, record)[:, 0]  # c_i = Σ_j a_ij (z_j + e_j) (eq. 2)
        return scaled_sum(h, c * _sqrt_length(context, c)), past

    def keys(self, memory: Tensor) -> Tensor:
        return self.attention.prepare_keys(memory[:, None])  # [B, 1, S, D]


def _sqrt_length(context: AttentionContext, c: Tensor) -> Tensor:
    """m · √(1/m): an even mean over a source of m words varies less than one word by this (Gehring 2017, 3.4)."""

    def make() -> Tensor:
        root = context.keys.lengths().to(c.dtype).sqrt()  # [B or 1]
        return root.repeat_interleave(len(c) // len(root))[:, None, None]  # [rows, 1, 1]: several where there are beams

    return context.once(("sqrt length", c.dtype), make)


# --- the model -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DotAttentionConfig(AttentionConfig):
    """The choices of attention to the source, which has one head and no projections."""

    score: ScoreConfig | list[ScoreConfig] = option(DotConfig, "how alike are a query and a key")

    def __post_init__(self) -> None:
        super().__post_init__()
        if keys := self.projection_keys():
            raise ValueError(f"{keys[0]} means nothing here: there are no projections")
        for score in self.score if isinstance(self.score, list) else [self.score]:
            if isinstance(score, DotConfig) and score.init == "compensated":
                raise ValueError("score.init: compensated needs a query projection, which is not here")
        if any(c.kind != "none" for c in (self.compress if isinstance(self.compress, list) else [self.compress])):
            raise ValueError("compress must be none: the encoder's states are not shortened")


@choice("conv", "A5", "h ← (v(conv h) + h) · √½, then h ← (h + √m · Σ_j a_ij (z_j + e_j)) · √½", "Gehring 2017")
class ConvConfig(ModelConfig):
    """Encoder and decoder of convolutions, with attention to the source in every decoder layer."""

    presets: ClassVar[Presets] = PRESETS

    preset: str | None = option(None, f"named sizes: {', '.join(PRESETS)}; any key given beside it wins")
    layers: int = option(4, "of the encoder, and of the decoder unless decoder_layers says otherwise")
    decoder_layers: int | None = option(None, "of the decoder; none: as many as the encoder has")
    size: int = option(256, "D, the width of the model")
    kernel: int = option(3, "words in a window; odd, so that it has a middle")
    dropout: float = option(0.1, "on the embeddings, on the input of every convolution and on the decoder's output")
    encoder: ConvEncoderConfig = option(GatedConfig, "what the encoder's layers are")
    share: Share = option("all", SHARE)
    init: Literal["paper", "xavier", "normal"] = option(
        "paper", "how weights begin: so that variance is kept, by fan-in and fan-out, or N(0, 0.02²)"
    )
    scale_embedding: bool = option(False, "multiply embeddings by √size: sinusoidal positions are that large")
    position: PositionConfig = option(LearnedConfig, "how order enters, on both sides; added to the words")
    attention: DotAttentionConfig = option(DotAttentionConfig, "the choices of attention to the source")

    def __post_init__(self) -> None:
        at_least(self, 1, "layers", "decoder_layers", "size", "kernel")
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, so that a window has a middle, not {self.kernel}")
        below_one(self, "dropout")
        if not self.position.embeds:
            known = ", ".join(kind for kind, cls in choices(PositionConfig).items() if cls.embeds)
            raise ValueError(f"position is {self.position.kind}, which acts within self-attention; known: {known}")
        self.position.check(self.sizes)

    @property
    def sizes(self) -> Sizes:
        return Sizes.of(self.size, 1)

    @property
    def attention_layers(self) -> int:
        return self.decoder_layers or self.layers

    def check(self, source: int, target: int) -> None:
        """Raise ValueError where the choices cannot serve sequences of this length."""
        self.attention.check("cross", source, self.attention_layers)
        check_max_length(self.position, "position", max(source, target))

    def build(self, source_entries: int, target_entries: int) -> "ConvS2S":
        return ConvS2S(self, source_entries, target_entries)


class ConvS2S(nn.Module):
    def __init__(self, config: ConvConfig, source_entries: int, target_entries: int) -> None:
        super().__init__()
        c, self.config = config, config
        self.source_embedding, self.target_embedding, tied = shared_embeddings(
            c.share, source_entries, target_entries, c.size, c.scale_embedding
        )
        self.output = Output(tied, target_entries, c.size)
        self.dropout = Dropout(c.dropout)
        self.encoder_position, self.decoder_position = c.position.build(c.sizes), c.position.build(c.sizes)
        self.encoder = nn.ModuleList(c.encoder.build(c.size, c.kernel, c.dropout) for _ in range(c.layers))
        self.decoder = ModuleList(
            ConvDecoderLayer(c.size, c.kernel, c.dropout, self._attention(n)) for n in range(c.attention_layers)
        )
        {**INITS, "paper": init_keep_variance}[c.init](self)

    def _attention(self, layer: int) -> Attention:
        return Attention(self.config.sizes, self.config.attention, Position(), Padding() & Document(), layer)

    @property
    def longest(self) -> int | None:
        """How many target positions the model can tell apart, where there is a limit."""
        return self.decoder_position.longest

    # --- the whole sequence at once: training, scoring ---------------------------------------------------------

    def encode(self, batch: PairBatch) -> tuple[Tensor, Tensor, Layout]:
        """The keys and the values of the source ids [B, S], [B, S, D] each, with their layout."""
        layout = Layout.of(batch.source.shape[1], batch.source_real, batch.source.device, batch.tree)
        e = self.dropout(self.encoder_position.embed(self.source_embedding(batch.source), layout))
        z = e
        for layer in self.encoder:
            z = layer(z, layout.real)
        z = scale_gradient(z, 1 / (2 * self.config.attention_layers))  # every attention adds to it (Gehring 2017, 3.4)
        return z, scaled_sum(z, e), layout

    def forward(
        self, batch: PairBatch, record: AttentionRecorder | None = None, smoothing: float | None = None
    ) -> Tensor:
        """Logits at every real target position [N, V], in the order of `batch.labels`.

        With `smoothing`, the loss of those labels, summed, instead: the logits are then never kept.
        """
        assert batch.target is not None
        assert batch.label_positions is not None
        memory, values, source = self.encode(batch)
        layout = Layout.of(batch.target.shape[1], device=batch.device)
        g = self.dropout(self.decoder_position.embed(self.target_embedding(batch.target), layout))
        x, context = g, AttentionContext(layout, source)
        for n, layer in enumerate(self.decoder):
            read = (layer.keys(memory), values[:, None])
            x, _ = layer(x, g, read, context, record=record and record.at("cross", n))
        return self.output.at(self.dropout(x).flatten(0, 1)[batch.label_positions], batch.labels, smoothing)

    # --- step by step: decoding --------------------------------------------------------------------------------

    def start(self, batch: PairBatch, length: int, record: AttentionRecorder | None = None) -> DecoderState:
        """Encode the source; the state has room for `length` target tokens a row."""
        memory, values, layout = self.encode(batch)
        position = torch.zeros(len(memory), dtype=torch.long, device=memory.device)
        layers = []
        for layer in self.decoder:
            past = memory.new_zeros(len(memory), layer.convolution.reach, self.config.size)
            read = CrossKVCache(layer.keys(memory), values[:, None])
            layers.append((StateTensors({"past": past}), read))
        return DecoderState(position, layers, layout.real, layout.length, length, record=record)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read T more tokens a row [B, T]; give the logits of the token after each [B, T, V]."""
        steps = tokens.shape[1]
        context = state.cross_context(steps)
        g = x = self.decoder_position.embed(self.target_embedding(tokens), context.queries)
        for n, (layer, (rows, source)) in enumerate(zip(self.decoder, state.layers, strict=True)):
            record = state.record and state.record.at("cross", n)
            x, rows["past"] = layer(x, g, source.read(), context, rows["past"], record)
        state.advance(steps)
        return self.output(x), state
