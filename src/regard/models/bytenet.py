"""ByteNet (Kalchbrenner 2016): dilated convolutions, and a target network that stands on the source's columns.

There is no attention: at step t the target network reads column t of the source, so both run along one time line.
"""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Presets, at_least, below_one, choice, option
from regard.models.batch import PairBatch
from regard.models.contract import ModelConfig
from regard.models.init import INITS
from regard.models.state import DecoderState
from regard.nn.cache import StateTensors
from regard.nn.convolution import Convolution
from regard.nn.dropout import Dropout
from regard.nn.embedding import SHARE, Output, Share, shared_embeddings
from regard.nn.layers import ModuleList
from regard.nn.layout import Layout
from regard.nn.record import AttentionRecorder

PRESETS: Presets = {"bytenet": {"sets": 1, "size": 256, "kernel": 3, "dropout": 0.1}}


@choice(
    "bytenet",
    "A6",
    "x ← x + W₃ r(conv_r(r(W₁ r(x)))), r(x) = max(0, norm(x)), dilations 1, 2, 4, 8, 16, 1, …",
    "Kalchbrenner 2016",
)
class ByteNetConfig(ModelConfig):
    """Two stacks of dilated convolutions, the target's on top of the source's; no attention."""

    presets: ClassVar[Presets] = PRESETS

    preset: str | None = option(None, f"named sizes: {', '.join(PRESETS)}; any key given beside it wins")
    sets: int = option(1, "how often the row of dilations comes, in the source network and in the target network")
    dilations: list[int] = option([1, 2, 4, 8, 16], "how far apart the words of a window stand, block by block")
    size: int = option(256, "D = 2d, the width of the model; convolutions are half as wide")
    kernel: int = option(3, "words in a window; odd, so that it has a middle")
    dropout: float = option(0.1, "on the embeddings and on what every block adds")
    stretch: float = option(1.2, "a: the source has a · length + b columns, for the target to read one a step")
    extra: int = option(0, "b, see stretch")
    share: Share = option("all", SHARE)
    init: Literal["xavier", "normal"] = option("xavier", "how weights begin: by fan-in and fan-out, or N(0, 0.02²)")

    def __post_init__(self) -> None:
        at_least(self, 1, "sets", "size", "kernel")
        if self.size % 2:
            raise ValueError(f"size must be even, since convolutions are half as wide, not {self.size}")
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, so that a window has a middle, not {self.kernel}")
        if not self.dilations or min(self.dilations) < 1:
            raise ValueError(f"dilations must be one or more numbers of at least 1, not {self.dilations}")
        below_one(self, "dropout")
        if not 1 <= self.stretch < 100 or self.extra < 0:
            raise ValueError("stretch must be at least 1 (and below 100) and extra at least 0: no word may be cut off")

    def check(self, source: int, target: int) -> None:
        """Sequences of any length are served."""

    def build(self, source_entries: int, target_entries: int) -> "ByteNet":
        return ByteNet(self, source_entries, target_entries)


class NormRelu(nn.Module):
    """max(0, norm(x)), before every convolution of a block."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(size)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(x))


class ByteNetBlock(nn.Module):
    """x + W₃ r(conv(r(W₁ r(x)))): 2d → d → d → 2d features (Kalchbrenner 2016, figure 3, left)."""

    def __init__(self, size: int, kernel: int, dilation: int, dropout: float) -> None:
        super().__init__()
        self.narrow = nn.Sequential(NormRelu(size), Convolution(size, size // 2, 1), NormRelu(size // 2))
        self.convolution = Convolution(size // 2, size // 2, kernel, dilation)
        self.widen = nn.Sequential(NormRelu(size // 2), Convolution(size // 2, size, 1), Dropout(dropout))


class SourceBlock(ByteNetBlock):
    def forward(self, x: Tensor, real: Tensor) -> Tensor:
        return x + self.widen(self.convolution.centred(self.narrow(x), real))  # [B, M, D]


class TargetBlock(ByteNetBlock):
    def forward(self, x: Tensor, past: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """No position sees a later one. Also gives the new past."""
        y, past = self.convolution.causal(self.narrow(x), past)
        return x + self.widen(y), past  # [B, T, D]


class ByteNet(nn.Module):
    longest: int | None = None  # convolutions run over any length

    def __init__(self, config: ByteNetConfig, source_entries: int, target_entries: int) -> None:
        super().__init__()
        c, self.config = config, config
        self.source_embedding, self.target_embedding, tied = shared_embeddings(
            c.share, source_entries, target_entries, c.size
        )
        self.output = Output(tied, target_entries, c.size)
        self.dropout = Dropout(c.dropout)
        dilations = c.dilations * c.sets
        self.encoder = nn.ModuleList(SourceBlock(c.size, c.kernel, dilation, c.dropout) for dilation in dilations)
        self.decoder = ModuleList(TargetBlock(c.size, c.kernel, dilation, c.dropout) for dilation in dilations)
        self.final = nn.Sequential(NormRelu(c.size), Convolution(c.size, c.size, 1))
        INITS[c.init](self)

    # --- the whole sequence at once: training, scoring ---------------------------------------------------------

    def encode(self, batch: PairBatch) -> Tensor:
        """The source ids [B, S] as columns [B, M, D], a row's own a·|s| + b of them, zero after those.

        Columns past the last word begin as zeros, and are filled by what the convolutions bring there.
        """
        layout = Layout.of(batch.source.shape[1], batch.source_real, batch.device)
        x = self.dropout(self.source_embedding(batch.source))
        if layout.real is not None:
            x = x.masked_fill(~layout.real[..., None], 0.0)
        most = int(self.config.stretch * layout.length) + self.config.extra  # M
        own = (self.config.stretch * layout.lengths().double()).long() + self.config.extra  # [B or 1]
        real = torch.arange(most, device=batch.device) < own[:, None]  # [B or 1, M]
        x = F.pad(x, (0, 0, 0, most - layout.length))
        for block in self.encoder:
            x = block(x, real)
        return x.masked_fill(~real[..., None], 0.0)

    def forward(
        self, batch: PairBatch, record: AttentionRecorder | None = None, smoothing: float | None = None
    ) -> Tensor:
        """Logits at every real target position [N, V], in the order of `batch.labels`.

        With `smoothing`, the loss of those labels, summed, instead: the logits are then never kept.
        """
        assert batch.target is not None
        assert batch.label_positions is not None
        columns = self.encode(batch)
        x = self.dropout(self.target_embedding(batch.target))
        x = x + F.pad(columns, (0, 0, 0, x.shape[1] - columns.shape[1]))  # cut, or zeros past the last
        for block in self.decoder:
            x, _ = block(x)
        x = self.final(x.flatten(0, 1)[batch.label_positions][None])[0]  # [N, D]
        return self.output.at(x, batch.labels, smoothing)

    # --- step by step: decoding --------------------------------------------------------------------------------

    def start(self, batch: PairBatch, length: int, record: AttentionRecorder | None = None) -> DecoderState:
        """Encode the source; the state has room for `length` target tokens a row."""
        columns = self.encode(batch)
        position = torch.zeros(len(columns), dtype=torch.long, device=columns.device)
        layers = [(StateTensors({"columns": columns}, frozenset({"columns"})),)]
        for block in self.decoder:
            past = columns.new_zeros(len(columns), block.convolution.reach, self.config.size // 2)
            layers.append((StateTensors({"past": past}),))
        return DecoderState(position, layers, batch.source_real, batch.source.shape[1], length, record=record)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read T more tokens a row [B, T]; give the logits of the token after each [B, T, V]."""
        positions = state.position[:, None] + torch.arange(tokens.shape[1], device=tokens.device)  # [B, T]
        (columns,), *pasts = state.layers
        x = self.target_embedding(tokens) + _read_columns(columns["columns"], positions)
        for block, (rows,) in zip(self.decoder, pasts, strict=True):
            x, rows["past"] = block(x, rows["past"])
        state.advance(tokens.shape[1])
        return self.output(self.final(x)), state


def _read_columns(columns: Tensor, positions: Tensor) -> Tensor:
    """Column positions[b, t] of row b [B, T, D]; zeros past the last. The beams of a sentence share its columns."""
    row = torch.arange(len(positions), device=columns.device)[:, None] // (len(positions) // len(columns))
    last = columns.shape[1] - 1
    return columns[row, positions.clamp(max=last)].masked_fill((positions > last)[..., None], 0.0)
