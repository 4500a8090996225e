"""ELMo: a biLSTM body over its own embeddings and the states of a frozen biLM. Knows no tags.

The biLM's weights come from the run that `training.init` names, and go with the tagger's own.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.config import at_least, below_one, choice, option
from regard.models.batch import TextBatch
from regard.models.contract import ModelConfig
from regard.models.lstm import BiLstmConfig
from regard.models.recurrent import Recurrent
from regard.nn.dropout import RowDropout
from regard.nn.embedding import Embedding
from regard.nn.record import AttentionRecorder


@choice(
    "elmo", "A12", "[E[w_t]; γ Σ_j softmax(s)_j h_t,j] → biLSTM; h_t,j: layer j of a frozen biLM", "Peters 2018, eq. 1"
)
class ElmoConfig(ModelConfig):
    """A biLSTM over words and, beside them, a learned mix of the layers of a frozen language model."""

    embedding: int = option(128, "the width of its own words")
    size: int = option(512, "D, the width of its states, half of it in each direction")
    layers: int = option(1, "of its own biLSTM")
    dropout: float = option(0.5, "on what it reads, and on its states")
    features: BiLstmConfig | None = option(None, "the biLM, as its recipe has it; none: words alone")

    def __post_init__(self) -> None:
        at_least(self, 1, "embedding", "size", "layers")
        if self.size % 2:
            raise ValueError(f"size must be even, half of it for each direction, not {self.size}")
        below_one(self, "dropout")

    def check(self, longest: int) -> None:
        """Any length will do."""

    def build(self, entries: int) -> "Elmo":
        return Elmo(self, entries)


class ScalarMix(nn.Module):
    """γ Σ_j softmax(s)_j h_j: a learned mix of layers."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.weights, self.gamma = nn.Parameter(torch.zeros(layers)), nn.Parameter(torch.ones(()))

    def forward(self, layers: list[Tensor]) -> Tensor:
        shares = self.weights.softmax(0)
        return self.gamma * sum(share * layer for share, layer in zip(shares, layers, strict=True))


class Elmo(nn.Module):
    inherits: ClassVar[str] = "features."  # where another run's body goes; the rest begins anew
    capturable = False  # by a CUDA graph

    def __init__(self, config: ElmoConfig, entries: int) -> None:
        super().__init__()
        c, self.config = config, config
        self.embedding = Embedding(entries, c.embedding, scale=False)
        self.features, width = None, c.embedding
        if c.features is not None:
            self.features, self.mix = c.features.body(entries).requires_grad_(False), ScalarMix(c.features.layers + 1)
            width += 2 * c.features.size
        self.dropout = RowDropout(c.dropout)
        self.lstm = Recurrent("lstm", width, c.size // 2, c.layers, c.dropout, directions=2)
        self.lstm.reset_parameters()

    def train(self, mode: bool = True) -> "Elmo":
        super().train(mode)
        if self.features is not None:
            self.features.eval()
        return self

    def forward(self, batch: TextBatch, record: AttentionRecorder | None = None) -> Tensor:
        """States [B, T, D]."""
        x = self.embedding(batch.ids)
        if self.features is not None:
            with torch.no_grad():
                layers = self.features.bidirectional(batch.ids, batch.lengths())
            x = torch.cat([x, self.mix(layers)], -1)
        return self.dropout(self.lstm.read(self.dropout(x), batch.real)[0])
