"""What a model of single sequences is given: a language model's blocks and prompts, BERT's sentences and pairs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from regard.models.batch import Batch, RaggedRows
from regard.nn.layout import Layout, Tree


@dataclass(frozen=True)
class TextBatch(Batch):
    """A batch of sequences, padded on the right. Documents may be packed into one row; none sees another."""

    ids: Tensor  # [B, T]
    real: Tensor | None = None  # [B, T] False at padding; None when no place is padding
    document: Tensor | None = None  # [B, T] numbers that rise along a row, one for each document packed in it
    segments: Tensor | None = None  # [B, T] which sentence of a pair; None: all the first
    labels: Tensor | None = None  # [N] what should be said
    places: Tensor | None = None  # [N] where, in the flattened [B·T]
    classes: Tensor | None = None  # [B] one label for each row: whether its sentences follow each other
    rows: tuple[int, ...] = ()  # which examples these are
    tree: Tree | None = None  # where places hang in their dependency trees

    @property
    def device(self) -> torch.device:
        return self.ids.device

    def fixed(self) -> "TextBatch":
        """What a model reads of it: blocks of text are all alike in shape."""
        return replace(self, rows=())

    def lengths(self) -> Tensor:
        """How many places of each row are real [B]."""
        if self.real is None:
            return torch.full((len(self.ids),), self.ids.shape[1], device=self.device)
        return self.real.sum(-1)

    def layout(self, padding: bool = True) -> Layout:
        """Where everything stands; without `padding`, as if all were real, which later places cannot tell."""
        length, real = self.ids.shape[1], self.real if padding else None
        if self.document is None:
            return Layout.of(length, real, self.device, self.tree)
        return Layout(_within(self.document), length, real, self.document, tree=self.tree)

    def first(self, bos: int) -> Tensor:
        """What a search lets each row read first [B, 1]: the end of its prompt, or bos where it has none."""
        lengths = self.lengths()[:, None]
        if not self.ids.shape[1]:
            return torch.full_like(lengths, bos)
        return torch.where(lengths > 0, self.ids.gather(1, (lengths - 1).clamp(min=0)), bos)


def _within(document: Tensor) -> Tensor:
    """Positions that begin anew with every document [B, T], so that none can tell that it is packed."""
    place = torch.arange(document.shape[1], device=document.device).expand_as(document)
    begins = torch.ones_like(document, dtype=torch.bool)
    begins[:, 1:] = document[:, 1:] != document[:, :-1]
    return place - (place * begins).cummax(1).values


def collate_texts(
    rows: RaggedRows | Sequence[Sequence[int]], pad: int, segments: RaggedRows | None = None
) -> TextBatch:
    """Sequences to be read, as a batch; `segments` says of every place which sentence of a pair it belongs to."""
    ids, real = (rows if isinstance(rows, RaggedRows) else RaggedRows.of(rows)).padded(pad)
    return TextBatch(
        torch.from_numpy(ids),
        None if real.all() else torch.from_numpy(real),
        segments=None if segments is None else torch.from_numpy(segments.padded(0)[0]),
    )


def collate_blocks(ids: np.ndarray, names: tuple[int, ...] = ()) -> TextBatch:
    """A training batch of blocks cut from running text [B, T + 1]: every place says the next."""
    read, said = torch.from_numpy(np.ascontiguousarray(ids[:, :-1])), torch.from_numpy(ids[:, 1:].flatten())
    return TextBatch(read, labels=said, places=torch.arange(len(said)), rows=names)
