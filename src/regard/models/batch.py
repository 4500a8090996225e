"""Batches, the inputs of models: ids, padding masks, labels and their positions. Built by tasks, moved as one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from itertools import chain
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from regard.config import field_values
from regard.errors import RegardError
from regard.models.packed import PackedSequence, pack_pairs
from regard.nn.layout import Layout, Tree


class Batch:
    """Tensors that move as one; a frozen dataclass of tensors, of dataclasses of them, and of other values."""

    def to(self, device: torch.device | str, copy: bool = False) -> Self:
        """The batch on a device; with `copy`, in tensors of its own even where it was there before."""
        return _map_tensors(self, lambda tensor: tensor.to(device, non_blocking=True, copy=copy))

    def pin(self) -> Self:
        """The batch in memory that a GPU can copy from without stopping the host."""
        return _map_tensors(self, lambda tensor: tensor.pin_memory())


def _check_rows(batch: Batch, ids: str, *others: str) -> None:
    """Raise RegardError unless ids are [B, N], and other tensors beside them have as many rows and positions."""
    shape = vars(batch)[ids].shape
    if len(shape) != 2:
        raise RegardError(f"{ids} is {list(shape)}, and a batch has rows of ids, [B, N]")
    for name in others:
        value = vars(batch)[name]
        if value is not None and value.shape != shape:
            raise RegardError(f"{name} is {list(value.shape)}, which does not fit {ids}, {list(shape)}")


def _map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same with every tensor changed, however deep."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and any(map(is_dataclass, value)):
        return tuple(_map_tensors(part, change) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{name: _map_tensors(part, change) for name, part in field_values(value).items()})
    return value


# --- source and target ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairBatch(Batch):
    """A batch of source and target sequences, padded on the right."""

    source: Tensor  # [B, S] ids
    source_real: Tensor | None = None  # [B, S] False at padding; None when no position is padding
    target: Tensor | None = None  # [B, T] decoder input ids: <s> y₁ … yₙ
    labels: Tensor | None = None  # [N] at real positions only: y₁ … yₙ </s> of every row
    label_positions: Tensor | None = None  # [N] where those are in the flattened [B·T]
    rows: tuple[int, ...] = ()  # which examples these are
    tree: Tree | None = None  # dependency trees of the source
    links: Tensor | None = None  # [L, 3] reference alignments: row, target position, source position
    packed: tuple[PackedSequence, PackedSequence] | None = None  # source and target without padding

    def __post_init__(self) -> None:
        _check_rows(self, "source", "source_real")
        if self.target is not None and (self.target.dim() != 2 or len(self.target) != len(self.source)):
            raise RegardError(f"target is {list(self.target.shape)}, and source has {len(self.source)} rows")

    @property
    def target_real(self) -> Tensor:
        """[B, T] False at padding."""
        assert self.target is not None
        assert self.label_positions is not None
        real = torch.zeros(self.target.numel(), dtype=torch.bool, device=self.device)
        real[self.label_positions] = True
        return real.view_as(self.target)

    @property
    def device(self) -> torch.device:
        return self.source.device

    def label_places(self) -> Tensor:
        """Numbers of the labels [N] that grow by 1 along a target, and by more from one to the next."""
        assert self.target is not None
        return _places(self.target.shape, self.label_positions, self.device)

    def fixed(self) -> "PairBatch":
        """The packed sequences alone, whose few shapes come again: for captured training steps."""
        assert self.packed is not None
        return PairBatch(self.packed[0].ids, None, packed=self.packed)

    def first_tokens(self, bos: int) -> Tensor:
        """The first decoder input of each row [B, 1]."""
        return torch.full((len(self.source), 1), bos, device=self.device)

    def split_sources(self, tokens: int | None) -> "list[PairBatch]":
        """Its padded sources as batches of about so many tokens, each as long as its own longest."""
        if tokens is None or self.source_real is None or self.tree is not None:
            return [self]
        lengths, batches, start = self.source_real.sum(1).tolist(), [], 0
        while start < len(lengths):
            rows = slice(start, start + max(1, tokens // max(1, lengths[start])))
            longest = max(lengths[rows])
            batches.append(PairBatch(self.source[rows, :longest], self.source_real[rows, :longest]))
            start = rows.stop
        return batches if len(batches) > 1 else [self]


def _places(shape: torch.Size, positions: Tensor | None, device: torch.device) -> Tensor:
    """Positions in the flattened [B·T], with a gap between rows."""
    rows, length = shape
    if positions is None:
        positions = torch.arange(rows * length, device=device)
    return positions + positions // length


class RaggedRows:
    """Rows end to end: row j is flat[offsets[j] : offsets[j + 1]]. They are padded without a loop."""

    def __init__(self, flat: np.ndarray, offsets: np.ndarray) -> None:
        self.flat, self.lengths = flat, np.diff(offsets)

    @staticmethod
    def of(rows: Sequence[Sequence[int] | np.ndarray]) -> "RaggedRows":
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum()))
        return RaggedRows(flat, np.concatenate([[0], np.cumsum(lengths)]))

    def padded(self, pad: int, before: int | None = None, after: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Ids [B, N] and the padding mask [B, N]; `before` and `after` are put around every row."""
        front = before is not None
        lengths = self.lengths + front + (after is not None)
        position = np.arange(int(lengths.max(initial=0)))
        real = position < lengths[:, None]
        ids = np.full(real.shape, pad, dtype=np.int64)
        ids[(position >= front) & (position < (self.lengths + front)[:, None])] = self.flat
        if before is not None:
            ids[:, 0] = before
        if after is not None:
            ids[np.arange(len(ids)), lengths - 1] = after
        return ids, real


class SpecialTokens(Protocol):
    """The ids that frame the sequences of a side; a tokenizer has them."""

    pad: int
    bos: int
    eos: int


def collate_sources(rows: RaggedRows, pad: int, eos: int) -> tuple[Tensor, Tensor | None]:
    """Source rows, each closed by </s>, as ids [B, S] and the padding mask, or None if there is no padding."""
    ids, real = rows.padded(pad, after=eos)
    return torch.from_numpy(ids), None if real.all() else torch.from_numpy(real)


def collate_pairs(
    source: RaggedRows,
    target: RaggedRows,
    source_tokens: SpecialTokens,
    target_tokens: SpecialTokens,
    rows: tuple[int, ...] = (),
) -> PairBatch:
    """A training batch: sources end in </s>; targets are read shifted right and end in </s>."""
    source_ids, source_real = source.padded(source_tokens.pad, after=source_tokens.eos)
    ids, real = target.padded(target_tokens.pad, before=target_tokens.bos)  # [B, T]
    labels = target.padded(target_tokens.pad, after=target_tokens.eos)[0][real]  # [N]
    return PairBatch(
        torch.from_numpy(source_ids),
        None if source_real.all() else torch.from_numpy(source_real),
        torch.from_numpy(ids),
        torch.from_numpy(labels),
        torch.from_numpy(np.flatnonzero(real)),
        rows,
        packed=pack_pairs(source_ids, source_real, ids, real, labels),
    )


# --- single sequences ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FurtherLabels:
    """The tokens so many places after each position, and which positions have one."""

    labels: Tensor  # [N]
    positions: Tensor  # [N] in the flattened [B·T]

    @property
    def both(self) -> tuple[Tensor, Tensor]:
        return self.labels, self.positions


@dataclass(frozen=True)
class TextBatch(Batch):
    """A batch of single sequences, padded on the right: a language model's blocks and prompts, BERT's inputs.

    Documents may be packed into one row; none attends to another.
    """

    ids: Tensor  # [B, T]
    real: Tensor | None = None  # [B, T] False at padding; None when no position is padding
    document: Tensor | None = None  # [B, T] numbers that rise along a row, one for each document packed in it
    segments: Tensor | None = None  # [B, T] which sentence of a pair; None: all the first
    labels: Tensor | None = None  # [N]
    label_positions: Tensor | None = None  # [N] where those are in the flattened [B·T]
    classes: Tensor | None = None  # [B] one label for each row: whether its sentences follow each other
    rows: tuple[int, ...] = ()  # which examples these are
    tree: Tree | None = None  # dependency trees
    further: tuple[FurtherLabels, ...] = ()  # 2, 3 … tokens ahead, where those are learned too
    predicting: int | None = None  # the lowest layer whose predictions are learned too; None: the last alone

    def __post_init__(self) -> None:
        _check_rows(self, "ids", "real", "document", "segments")

    @property
    def device(self) -> torch.device:
        return self.ids.device

    def fixed(self) -> "TextBatch":
        """The tensors alone, whose shapes come again with every block: for captured training steps."""
        return replace(self, rows=())

    def label_places(self) -> Tensor:
        """Numbers of the labels [N] that grow by 1 along a text, and by more from one to the next."""
        places = _places(self.ids.shape, self.label_positions, self.device)
        if self.document is None:
            return places
        document = (
            self.document.flatten() if self.label_positions is None else self.document.flatten()[self.label_positions]
        )
        return places + document * self.ids.shape[1]

    def lengths(self) -> Tensor:
        """The number of real positions of each row [B]."""
        if self.real is None:
            return torch.full((len(self.ids),), self.ids.shape[1], device=self.device)
        return self.real.sum(-1)

    def layout(self, padding: bool = True) -> Layout:
        """The layout for attention; without `padding`, as if all were real, which is the same under a causal mask."""
        length, real = self.ids.shape[1], self.real if padding else None
        if self.document is None:
            return Layout.of(length, real, self.device, self.tree)
        return Layout(_document_positions(self.document), length, real, self.document, tree=self.tree)

    def first_tokens(self, bos: int) -> Tensor:
        """The first token that a search reads in each row [B, 1]: the end of its prompt, or bos where it has none."""
        lengths = self.lengths()[:, None]
        if not self.ids.shape[1]:
            return torch.full_like(lengths, bos)
        return torch.where(lengths > 0, self.ids.gather(1, (lengths - 1).clamp(min=0)), bos)


def _document_positions(document: Tensor) -> Tensor:
    """Positions that begin anew with every document [B, T]."""
    position = torch.arange(document.shape[1], device=document.device).expand_as(document)
    begins = torch.ones_like(document, dtype=torch.bool)
    begins[:, 1:] = document[:, 1:] != document[:, :-1]
    return position - (position * begins).cummax(1).values


def collate_texts(
    rows: RaggedRows | Sequence[Sequence[int]], pad: int, segments: RaggedRows | None = None
) -> TextBatch:
    """A batch of sequences without labels; `segments` says for every position which sentence of a pair it is in."""
    ids, real = (rows if isinstance(rows, RaggedRows) else RaggedRows.of(rows)).padded(pad)
    return TextBatch(
        torch.from_numpy(ids),
        None if real.all() else torch.from_numpy(real),
        segments=None if segments is None else torch.from_numpy(segments.padded(0)[0]),
    )


def collate_blocks(ids: np.ndarray, names: tuple[int, ...] = ()) -> TextBatch:
    """A training batch of blocks of text [B, T + 1]: the label of every position is the next token."""
    inputs, labels = torch.from_numpy(np.ascontiguousarray(ids[:, :-1])), torch.from_numpy(ids[:, 1:].flatten())
    return TextBatch(inputs, labels=labels, label_positions=torch.arange(len(labels)), rows=names)
