"""Embeddings, output projections, which may share one matrix, and heads that look further ahead than the next token."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.nn.feed_forward import FeedForward
from regard.nn.loss import vocabulary_loss

Share = Literal["none", "target", "all"]
SHARE = "one matrix for target embedding and output (target), and for the source embedding too (all)"


class Embedding(nn.Module):
    """A table of token vectors, multiplied by √D where `scale` (Vaswani 2017, 3.4) so that they match the positions."""

    def __init__(self, entries: int, size: int, scale: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(entries, size), std=size**-0.5))
        self.factor = size**0.5 if scale else 1.0

    def forward(self, ids: Tensor) -> Tensor:
        return nn.functional.embedding(ids, self.weight) * self.factor  # [..., D]


def shared_embeddings(
    share: Share, source_entries: int, target_entries: int, size: int, scale: bool = True
) -> tuple[Embedding, Embedding, Embedding | None]:
    """Embeddings of the source and of the target, and the one whose matrix is the output's too, if any is."""
    if share == "all" and source_entries != target_entries:
        raise ValueError("model.share: all needs one shared vocabulary (text.shared: true)")
    source = Embedding(source_entries, size, scale)
    target = source if share == "all" else Embedding(target_entries, size, scale)
    return source, target, None if share == "none" else target


class WordDropout(nn.Module):
    """Dropout of whole vocabulary entries, the same throughout the batch (Gal 2016, 4.2).

    The first token of a text stays: a position that sees only zeros is 0 in every layer, where the gradient of a norm
    is 1/√ε times what comes in, and a dozen layers of that are more than a number can hold.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor, ids: Tensor, entries: int, document: Tensor | None = None) -> Tensor:
        """x [B, T, D] are the vectors of ids [B, T], out of so many entries; `document` [B, T] is the layout's."""
        if not self.training or not self.rate:
            return x
        kept = F.dropout(torch.ones(entries, dtype=x.dtype, device=x.device), self.rate)[ids]  # [B, T]
        kept[:, 0] = 1.0
        if document is not None:
            kept[:, 1:].masked_fill_(document[:, 1:] != document[:, :-1], 1.0)
        return x * kept[..., None]


class Output(nn.Module):
    """Logits of the vocabulary, x · Wᵀ; W may be the embedding's own matrix."""

    def __init__(self, embedding: Embedding | None, entries: int, size: int) -> None:
        super().__init__()
        self.weight = embedding.weight if embedding else Embedding(entries, size, False).weight

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight)  # [..., V]

    def at(self, x: Tensor, labels: Tensor | None, smoothing: float | None) -> Tensor:
        """The logits of x [N, D], or, with `smoothing`, the loss of its labels [N], summed."""
        if smoothing is None:
            return self(x)
        assert labels is not None
        return vocabulary_loss(x, self.weight, labels, smoothing)


class BiasedOutput(Output):
    """x · Wᵀ + b, as in BERT and Marian."""

    SPARE = 8  # columns that are added, of which the bias is one: products of odd widths are slow on a GPU

    def __init__(self, embedding: Embedding | None, entries: int, size: int) -> None:
        super().__init__(embedding, entries, size)
        self.bias = nn.Parameter(torch.zeros(entries))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)  # [..., V]

    def at(self, x: Tensor, labels: Tensor | None, smoothing: float | None) -> Tensor:
        if smoothing is None:
            return self(x)
        assert labels is not None
        one = F.pad(x.new_ones(len(x), 1), (0, self.SPARE - 1))  # [x; 1] · [W; b]ᵀ is x · Wᵀ + b
        bias = F.pad(self.bias[:, None], (0, self.SPARE - 1))
        return vocabulary_loss(torch.cat([x, one], 1), torch.cat([self.weight, bias], 1), labels, smoothing)


class ProposalHeads(nn.Module):
    """States that score the tokens after the next one: h_i = x + FFN_i(x), by the model's own output (Stern 2018, 4).

    Head 1 of k is the model's own state, so k − 1 networks are here. `frozen`: only they learn.
    """

    def __init__(self, heads: int, size: int, inner: int, mean: bool = False, frozen: bool = False) -> None:
        super().__init__()
        self.networks = nn.ModuleList(FeedForward(size, inner) for _ in range(heads - 1))
        self.mean, self.frozen = mean, frozen

    @property
    def heads(self) -> int:
        return len(self.networks) + 1

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x + network(x) for network in self.networks], -2)  # [..., k − 1, D]

    def loss(self, output: Output, x: Tensor, labels: Tensor, place: Tensor, smoothing: float) -> Tensor:
        """The loss, summed, of one head that is drawn, or the mean of all; x [N, D] and labels [N] of the next tokens.

        `place` [N] grows by 1 from a token to the next of the same text, and by more between texts.
        """
        first = int(self.frozen)
        chosen = range(first, self.heads) if self.mean else [int(torch.randint(first, self.heads, ()))]
        total = torch.stack([self._loss(n, output, x, labels, place, smoothing) for n in chosen]).mean()
        return total + sum(0.0 * p.sum() for p in self.parameters())  # all take part, as several processes expect

    def _loss(self, n: int, output: Output, x: Tensor, labels: Tensor, place: Tensor, smoothing: float) -> Tensor:
        if not n:
            return output.at(x, labels, smoothing)
        told = (place[n:] == place[:-n] + n).nonzero()[:, 0]  # those with a label n tokens further on
        states = x[told]
        return output.at(states + self.networks[n - 1](states), labels[told + n], smoothing)
