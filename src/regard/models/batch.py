"""What a model is given: ids, who is real, and where the targets are. Built by tasks, moved as one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from regard.models.packed import PackedSequence, pack_pairs
from regard.nn.layout import Tree


class Batch:
    """Tensors that move as one; a frozen dataclass of them, of trees of them, and of what stays where it is."""

    def to(self, device: torch.device | str, copy: bool = False) -> Self:
        """There; with `copy`, in tensors of its own even where it was there before."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True, copy=copy))

    def pin(self) -> Self:
        """In memory that a GPU can copy from without stopping the host."""
        return self._each(lambda tensor: tensor.pin_memory())

    def _each(self, change: Callable[[Tensor], Tensor]) -> Self:
        return _each(self, change)  # type: ignore[no-any-return]


def _each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same with every tensor changed, however deep."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, tuple) and any(map(is_dataclass, value)):
        return tuple(_each(part, change) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _each(getattr(value, f.name), change) for f in fields(value)})
    return value


@dataclass(frozen=True)
class PairBatch(Batch):
    """A batch of source and target sequences, padded on the right."""

    source: Tensor  # [B, S] ids
    source_real: Tensor | None  # [B, S] False at padding; None when no place is padding
    target: Tensor | None = None  # [B, T] what the decoder reads: <s> y₁ … yₙ
    labels: Tensor | None = None  # [N] what it should say, real places only: y₁ … yₙ </s> of every row
    places: Tensor | None = None  # [N] where those stand in the flattened [B·T]
    rows: tuple[int, ...] = ()  # which examples these are
    tree: Tree | None = None  # where source places hang in their dependency trees
    links: Tensor | None = None  # [L, 3] given alignments: row, target place, source place
    packed: tuple[PackedSequence, PackedSequence] | None = None  # source and target without padding

    @property
    def target_real(self) -> Tensor:
        """[B, T] False at padding."""
        assert self.target is not None
        assert self.places is not None
        real = torch.zeros(self.target.numel(), dtype=torch.bool, device=self.device)
        real[self.places] = True
        return real.view_as(self.target)

    @property
    def device(self) -> torch.device:
        return self.source.device

    def fixed(self) -> "PairBatch":
        """What a model that takes packed sequences reads of it, in shapes that come again."""
        assert self.packed is not None
        return PairBatch(self.packed[0].ids, None, packed=self.packed)

    def first(self, bos: int) -> Tensor:
        """What a search lets each row read first [B, 1]."""
        return torch.full((len(self.source), 1), bos, device=self.device)

    def apart(self, places: int | None) -> "list[PairBatch]":
        """Its sources in parts of about so many places, each as long as its own longest; where there is padding."""
        if places is None or self.source_real is None or self.tree is not None:
            return [self]
        lengths, made, start = self.source_real.sum(1).tolist(), [], 0
        while start < len(lengths):
            rows = slice(start, start + max(1, places // max(1, lengths[start])))
            longest = max(lengths[rows])
            made.append(PairBatch(self.source[rows, :longest], self.source_real[rows, :longest]))
            start = rows.stop
        return made if len(made) > 1 else [self]


class RaggedRows:
    """Rows end to end: row j is flat[offsets[j] : offsets[j + 1]]. Batches are made of them without a loop."""

    def __init__(self, flat: np.ndarray, offsets: np.ndarray) -> None:
        self.flat, self.lengths = flat, np.diff(offsets)

    @staticmethod
    def of(rows: Sequence[Sequence[int] | np.ndarray]) -> "RaggedRows":
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        flat = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum()))
        return RaggedRows(flat, np.concatenate([[0], np.cumsum(lengths)]))

    def padded(self, filler: int, before: int | None = None, after: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Ids [B, N] and which are real [B, N]; `before` and `after` are put around every row."""
        front = before is not None
        lengths = self.lengths + front + (after is not None)
        places = np.arange(int(lengths.max(initial=0)))
        real = places < lengths[:, None]
        ids = np.full(real.shape, filler, dtype=np.int64)
        ids[(places >= front) & (places < (self.lengths + front)[:, None])] = self.flat
        if before is not None:
            ids[:, 0] = before
        if after is not None:
            ids[np.arange(len(ids)), lengths - 1] = after
        return ids, real


def collate_sources(rows: RaggedRows, filler: int, eos: int) -> tuple[Tensor, Tensor | None]:
    """Source rows, each closed by </s>, as ids [B, S] and the mask of real places, or None if none is padding."""
    ids, real = rows.padded(filler, after=eos)
    return torch.from_numpy(ids), None if real.all() else torch.from_numpy(real)


class SpecialTokens(Protocol):
    """The ids that frame a side's sequences; a tokenizer has them."""

    pad: int
    bos: int
    eos: int


def collate_pairs(
    source: RaggedRows,
    target: RaggedRows,
    source_marks: SpecialTokens,
    marks: SpecialTokens,
    rows: tuple[int, ...] = (),
) -> PairBatch:
    """A training batch: sources end in </s>; targets are read shifted right and end in </s>."""
    source_ids, source_real = source.padded(source_marks.pad, after=source_marks.eos)
    ids, real = target.padded(marks.pad, before=marks.bos)  # [B, T]
    labels = target.padded(marks.pad, after=marks.eos)[0][real]  # [N]
    return PairBatch(
        torch.from_numpy(source_ids),
        None if source_real.all() else torch.from_numpy(source_real),
        torch.from_numpy(ids),
        torch.from_numpy(labels),
        torch.from_numpy(np.flatnonzero(real)),
        rows,
        packed=pack_pairs(source_ids, source_real, ids, real, labels),
    )
