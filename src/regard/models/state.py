"""What a generating model remembers between steps. Rows can be moved (beams) and replaced (finished sentences)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.nn.record import Record


class Part(Protocol):
    """One thing of the state that has a row for each sequence: an attention's keys, a recurrent state."""

    position: Tensor

    def reorder(self, index: Tensor) -> None: ...

    def write(self, rows: Tensor, other: Any) -> None: ...


@dataclass
class Rows:
    """Named tensors [B, …] that move together: what recurrent and convolutional models keep."""

    position: Tensor  # [B] how many tokens each row has read; moved by the state
    tensors: dict[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.tensors[name] = value

    def reorder(self, index: Tensor) -> None:
        self.tensors = {name: tensor[index] for name, tensor in self.tensors.items()}

    def write(self, rows: Tensor, other: "Rows") -> None:
        """Replace some rows by those of another, whose tensors may be shorter in any other dimension."""
        for name, tensor in self.tensors.items():
            new = torch.zeros(len(rows), *tensor.shape[1:], dtype=tensor.dtype, device=tensor.device)
            new[tuple(slice(0, size) for size in other[name].shape)] = other[name].to(tensor.dtype)
            tensor[rows] = new


@dataclass
class State:
    position: Tensor  # [B] how many tokens each row has read
    layers: Sequence[tuple[Any, ...]]  # for each decoder layer what it keeps: Parts
    source_real: Tensor | None  # [B, S]
    source_length: int
    length: int  # room for target tokens in a row
    filled: int = 0  # no row has read more tokens than this
    record: Record | None = None  # attention weights that were asked for; they move with the rows
    _parts: list[Part] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._parts = [part for layer in self.layers for part in layer]

    def advance(self, steps: int) -> None:
        self.position = self.position + steps
        self.filled = min(self.filled + steps, self.length)
        self._share_position()

    def go_back(self, position: Tensor) -> None:
        """Let every row go on from an earlier position [B]; what it has read from there on is overwritten."""
        self.position = position
        self._share_position()

    def reorder(self, index: Tensor) -> None:
        """Row r becomes what row index[r] was; the index may repeat rows or leave some out."""
        self.position = self.position[index]
        if self.source_real is not None:
            self.source_real = self.source_real[index]
        if self.record is not None:
            self.record.reorder(index)
        for part in self._parts:
            part.reorder(index)
        self._share_position()

    def write(self, rows: Tensor, other: "State") -> None:
        """Replace rows by those of another state that has room for no more source and target than this one."""
        if self.record is not None:
            raise ValueError("rows whose attention is recorded cannot be replaced")
        self.position[rows] = other.position
        self.filled = max(self.filled, other.filled)
        if self.source_real is None:
            self.source_real = torch.ones(len(self.position), self.source_length, dtype=torch.bool, device=rows.device)
        self.source_real[rows] = False
        self.source_real[rows, : other.source_length] = True if other.source_real is None else other.source_real
        for part, new in zip(self._parts, other._parts, strict=True):
            part.write(rows, new)

    def _share_position(self) -> None:
        for part in self._parts:
            part.position = self.position
