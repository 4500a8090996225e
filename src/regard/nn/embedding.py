"""Word vectors in, word scores out; the two may share one matrix."""

import torch
from torch import Tensor, nn

from regard.nn.loss import vocabulary_loss


class Embedding(nn.Module):
    """A table of word vectors, multiplied by √D where `scale` (Vaswani 2017, 3.4) so that they match the positions."""

    def __init__(self, entries: int, size: int, scale: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.normal_(nn.Parameter().new_empty(entries, size), std=size**-0.5))
        self.factor = size**0.5 if scale else 1.0

    def forward(self, ids: Tensor) -> Tensor:
        return nn.functional.embedding(ids, self.weight) * self.factor  # [..., D]


class Output(nn.Module):
    """Scores for every word of the vocabulary, x · Wᵀ + b; W may be the embedding's own matrix, b is a choice."""

    def __init__(self, embedding: Embedding | None, entries: int, size: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = embedding.weight if embedding else Embedding(entries, size, False).weight
        self.bias = nn.Parameter(torch.zeros(entries)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)  # [..., V]

    def at(self, x: Tensor, labels: Tensor | None, smoothing: float | None) -> Tensor:
        """The scores of x [N, D], or, with `smoothing`, the loss of its labels [N], summed."""
        if smoothing is None:
            return self(x)
        assert labels is not None
        return vocabulary_loss(x, self.weight, labels, smoothing, self.bias)
