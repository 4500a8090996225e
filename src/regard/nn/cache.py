"""Keys and values kept between decoding steps, in storage that is fixed when decoding starts."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Cache:
    """One attention's keys and values. Rows are written at their own `position`, which may differ between rows."""

    keys: Tensor  # [B, H, L, d_k]
    values: Tensor  # [B, H, L, d_v]
    position: Tensor  # [B] where the next key goes; shared with, and moved by, the decoding state
    filled: int = 0  # no row has more keys than this

    @staticmethod
    def empty(position: Tensor, heads: int, length: int, d_k: int, d_v: int, like: Tensor) -> "Cache":
        rows = len(position)
        keys = torch.zeros(rows, heads, length, d_k, dtype=like.dtype, device=like.device)
        values = torch.zeros(rows, heads, length, d_v, dtype=like.dtype, device=like.device)
        return Cache(keys, values, position)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Write T new keys to each row, and give all keys up to the longest row."""
        rows, _, steps, _ = k.shape
        place = self.position[:, None] + torch.arange(steps, device=k.device)  # [B, T]
        row = torch.arange(rows, device=k.device)[:, None]
        self.keys[row, :, place] = k.transpose(1, 2).to(self.keys.dtype)  # [B, T, H, d]
        self.values[row, :, place] = v.transpose(1, 2).to(self.values.dtype)
        self.filled = min(self.filled + steps, self.keys.shape[2])  # rows that were replaced are shorter
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        return self.keys[:, :, : self.filled], self.values[:, :, : self.filled]

    def reorder(self, index: Tensor) -> None:
        self.keys, self.values = self.keys[index], self.values[index]

    def write(self, rows: Tensor, other: "Cache") -> None:
        """Replace some rows by those of another cache, whose storage may be shorter."""
        length = other.filled
        self.keys[rows, :, :length] = other.keys[:, :, :length]
        self.values[rows, :, :length] = other.values[:, :, :length]
        self.filled = max(self.filled, length)
