"""The decoder alone on pairs of texts: source, separator and target are one sequence, which a language model reads.

`</s> <s>` is the separator, since a source ends and a target begins so everywhere. Knows no layers: those are the
language model's, causal throughout.
"""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Presets, at_least, choice, option
from regard.errors import RegardError
from regard.models import stack
from regard.models.batch import PairBatch, TextBatch
from regard.models.decoders.auxiliary import gradient_only
from regard.models.lm import PRESETS, LanguageModel, LanguageModelConfig
from regard.models.stack import Positions
from regard.models.state import DecoderState
from regard.nn.position import SinusoidalConfig
from regard.nn.record import AttentionRecorder


@choice("decoder_only", "A11", "p(w_1 … w_n) = Π p(w_i | w_<i), w = source </s> <s> target </s>", "Liu 2018, 4.2.2")
class DecoderOnlyConfig(LanguageModelConfig):
    """A decoder alone for pairs of texts: it reads a source and goes on with the target."""

    presets: ClassVar[Presets] = {name: keys for name, keys in PRESETS.items() if "layer_losses" not in keys}

    init: Literal["xavier", "normal", "depth"] = option(
        "xavier", "how weights begin: by fan-in and fan-out, N(0, 0.02²), or that with less from each sub-layer"
    )
    scale_embedding: bool = option(True, "multiply embeddings by √size")
    position: Positions = option(SinusoidalConfig, "how order enters; a list is tiled over the layers")
    source_weight: float = option(
        1.0, "of the loss of the source's own tokens, beside 1 for the target's; 0: the target alone is learned"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "source_weight")
        for name, usual in (("memory", 0), ("layer_losses", False), ("targets", 1)):
            if vars(self)[name] != usual:
                raise ValueError(f"{name} belongs to the model lm, which reads running text")
        for position in stack.as_list(self.position):
            if position.max_length is not None:
                raise ValueError(
                    f"position: {position.kind} ends after {position.max_length} tokens, and source and output are "
                    "one sequence, whose length is not known before; write sinusoidal, rotary or another without end"
                )

    def check(self, source: int, target: int = 0) -> None:
        """Raise ValueError where the choices cannot serve both of these lengths in a row."""
        self.attention.check("decoder", source + target, self.layers)

    def build(self, source_entries: int, target_entries: int = 0) -> "DecoderOnly":  # type: ignore[override]
        if target_entries not in (0, source_entries):
            raise RegardError("model.kind: decoder_only needs one shared vocabulary (text.shared: true)")
        return DecoderOnly(self, source_entries)


class DecoderOnly(nn.Module):
    def __init__(self, config: DecoderOnlyConfig, entries: int) -> None:
        super().__init__()
        self.config, self.body = config, LanguageModel(config, entries)

    @property
    def longest(self) -> int | None:
        return self.body.longest

    # --- the whole sequence at once: training, scoring ---------------------------------------------------------

    def forward(
        self, batch: PairBatch, record: AttentionRecorder | None = None, smoothing: float | None = None
    ) -> Tensor:
        """Logits at every real target position [N, V], in the order of `batch.labels`; without labels, all [B, T, V].

        With `smoothing`, the loss of those labels, summed, instead; in training, the source's has a gradient too.
        """
        assert batch.target is not None
        lengths = source_lengths(batch)  # [B]
        x = self.body.hidden(join_pairs(batch, lengths), record)  # [B, S + T, D]
        after = lengths[:, None] + torch.arange(batch.target.shape[1], device=batch.device)  # [B, T]
        hidden = x.gather(1, after[..., None].expand(-1, -1, x.shape[-1]))  # [B, T, D]
        if batch.label_positions is not None:
            hidden = hidden.flatten(0, 1)[batch.label_positions]
        if smoothing is None or not self.training:
            return self.body.output.at(hidden, batch.labels, smoothing)
        assert batch.labels is not None
        if self.body.proposals is not None:
            out = self.body.proposals.loss(self.body.output, hidden, batch.labels, batch.label_places(), smoothing)
        else:
            out = self.body.output.at(hidden, batch.labels, smoothing)
        if not self.config.source_weight:
            return out
        read, labels = x[:, : batch.source.shape[1] - 1], batch.source[:, 1:]
        if batch.source_real is None:
            read, labels = read.flatten(0, 1), labels.flatten()
        else:
            read, labels = read[batch.source_real[:, 1:]], labels[batch.source_real[:, 1:]]
        return out + gradient_only(self.config.source_weight * self.body.output.at(read, labels, smoothing))

    # --- step by step: decoding --------------------------------------------------------------------------------

    def start(
        self, batch: PairBatch, length: int, record: AttentionRecorder | None = None, *, bounded: bool = True
    ) -> DecoderState:
        """Read the sources; the state has room for `length` target tokens a row. `bounded` as LanguageModel has it."""
        if record is not None and batch.source_real is not None:
            raise RegardError("a decoder_only records the attention of one line at a time; give one line")
        places, real = torch.arange(batch.source.shape[1] + 1, device=batch.device), None
        if batch.source_real is not None:
            real = places <= source_lengths(batch)[:, None]
        return self.body.start(TextBatch(F.pad(batch.source, (0, 1)), real), length, record, bounded=bounded)

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read T more tokens a row [B, T]; give the logits of the token after each [B, T, V]."""
        return self.body.step(tokens, state)


def source_lengths(batch: PairBatch) -> Tensor:
    """How many tokens each source has, its end included [B]."""
    if batch.source_real is None:
        return torch.full((len(batch.source),), batch.source.shape[1], device=batch.device)
    return batch.source_real.sum(1)


def join_pairs(batch: PairBatch, lengths: Tensor) -> TextBatch:
    """Each target right behind its source, in rows of S + T; what follows the target is padding."""
    assert batch.target is not None
    sources, targets = batch.source.shape[1], batch.target.shape[1]
    place = torch.arange(sources + targets, device=batch.device)
    after = place - lengths[:, None]  # [B, S + T] places in the target
    ids = torch.where(after < 0, F.pad(batch.source, (0, targets)), batch.target.gather(1, after.clamp(0, targets - 1)))
    if batch.label_positions is None:
        return TextBatch(ids)
    return TextBatch(ids, after < batch.target_real.sum(1, keepdim=True))
