"""Packed sequences: the rows of a batch end to end, in few shapes.

Fast kernels find each row by its span. A packed sequence is filled up to a round length with spans of padding, which
no row sees; so only few shapes occur, and a step captured for one of them can be replayed.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.nn.layout import Layout, SequenceSpans

LENGTHS_PER_OCTAVE = 32  # lengths between one power of two and the next that a packed sequence is filled up to


@dataclass(frozen=True)
class PackedSequence:
    ids: Tensor  # [1, M]
    layout: Layout
    labels: Tensor | None = None  # [M] below zero at padding


def pack_pairs(
    source: np.ndarray, source_real: np.ndarray, target: np.ndarray, real: np.ndarray, labels: np.ndarray
) -> tuple[PackedSequence, PackedSequence]:
    """Padded ids and padding masks, [B, S] and [B, T]; labels [N] at the real target positions."""
    lengths = [mask.sum(1) for mask in (source_real, real)]
    rooms = [_round(int(count.sum())) for count in lengths]
    tiles = [max(16, _power(mask.shape[1])) for mask in (source_real, real)]
    spare = [_pieces(room - int(count.sum()), tile) for room, count, tile in zip(rooms, lengths, tiles, strict=True)]
    none = [np.zeros_like(other) for other in reversed(spare)]
    spans = [
        np.concatenate([lengths[0], spare[0], none[0]]),
        np.concatenate([lengths[1], none[1], spare[1]]),
    ]  # a padding of one side has nothing on the other
    sides = [
        _packed(ids[mask], count, tile, room, sum(rooms))
        for ids, mask, count, tile, room in zip((source, target), (source_real, real), spans, tiles, rooms, strict=True)
    ]
    padded = torch.from_numpy(np.pad(labels, (0, rooms[1] - len(labels)), constant_values=-1))
    return PackedSequence(*sides[0]), PackedSequence(*sides[1], padded)


def _power(count: int) -> int:
    """The least power of two that has room for so many."""
    return 1 << (count - 1).bit_length()


def _round(count: int) -> int:
    """The next of `LENGTHS_PER_OCTAVE` lengths between two powers of two."""
    step = max(16, _power(count) // 2 // LENGTHS_PER_OCTAVE)
    return -(-count // step) * step


def _pieces(count: int, tile: int) -> np.ndarray:
    """Lengths that sum up to `count`, none above a tile."""
    return np.diff(np.append(np.arange(0, count, tile), count)) if count else np.zeros(0, dtype=np.int64)


def _packed(ids: np.ndarray, lengths: np.ndarray, tile: int, room: int, most: int) -> tuple[Tensor, Layout]:
    start = np.cumsum(lengths) - lengths
    position = np.arange(room) - np.repeat(start, lengths)
    table = np.zeros((2, most), dtype=np.int32)
    table[0, : len(start)], table[1, : len(start)] = start, lengths
    first, count = torch.from_numpy(table)
    many = torch.tensor([len(start)], dtype=torch.int32)
    layout = Layout(torch.from_numpy(position)[None], tile, spans=SequenceSpans(first, count, many, tile))
    return torch.from_numpy(np.pad(ids, (0, room - len(ids))))[None], layout
