"""What a generating model remembers between steps. Rows can be moved (beams) and replaced (finished sentences)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.nn.cache import Cache


@dataclass
class State:
    position: Tensor  # [B] how many tokens each row has read
    caches: list[tuple[Cache, Cache]]  # for each decoder layer: its own past, the source
    source_real: Tensor | None  # [B, S]
    source_length: int
    length: int  # room for target tokens in a row
    filled: int = 0  # no row has read more tokens than this

    def advance(self, steps: int) -> None:
        self.position = self.position + steps
        self.filled = min(self.filled + steps, self.length)
        for past, _ in self.caches:
            past.position = self.position

    def reorder(self, index: Tensor) -> None:
        """Row r becomes what row index[r] was; the index may repeat rows or leave some out."""
        self.position = self.position[index]
        if self.source_real is not None:
            self.source_real = self.source_real[index]
        for past, source in self.caches:
            past.reorder(index)
            source.reorder(index)
            past.position = self.position

    def write(self, rows: Tensor, other: "State") -> None:
        """Replace rows by those of another state that has room for no more source and target than this one."""
        self.position[rows] = other.position
        self.filled = max(self.filled, other.filled)
        if self.source_real is None:
            self.source_real = torch.ones(len(self.position), self.source_length, dtype=torch.bool, device=rows.device)
        self.source_real[rows] = False
        self.source_real[rows, : other.source_length] = True if other.source_real is None else other.source_real
        for (past, source), (other_past, other_source) in zip(self.caches, other.caches, strict=True):
            past.write(rows, other_past)
            source.write(rows, other_source)
