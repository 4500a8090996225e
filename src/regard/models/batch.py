"""What a model is given: ids, who is real, and where the targets are. Built by tasks, moved as one."""

from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Pairs:
    """A batch of source and target sequences, padded on the right."""

    source: Tensor  # [B, S] ids
    source_real: Tensor | None  # [B, S] False at padding; None when no place is padding
    target: Tensor | None = None  # [B, T] what the decoder reads: <s> y₁ … yₙ
    labels: Tensor | None = None  # [N] what it should say, real places only: y₁ … yₙ </s> of every row
    places: Tensor | None = None  # [N] where those stand in the flattened [B·T]
    rows: tuple[int, ...] = ()  # which examples these are

    def to(self, device: torch.device | str) -> "Pairs":
        moved = {
            f.name: value.to(device, non_blocking=True)
            for f in fields(self)
            if isinstance(value := getattr(self, f.name), Tensor)
        }
        return replace(self, **moved)

    def pin(self) -> "Pairs":
        pinned = {f.name: v.pin_memory() for f in fields(self) if isinstance(v := getattr(self, f.name), Tensor)}
        return replace(self, **pinned)


def pad(rows: list[np.ndarray], filler: int, front: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Rows as one array [B, N] and its lengths; `front` is put before each row."""
    shift = front is not None
    lengths = np.fromiter((len(row) + shift for row in rows), dtype=np.int64, count=len(rows))
    out = np.full((len(rows), int(lengths.max(initial=0))), filler, dtype=np.int64)
    out[np.arange(out.shape[1]) < lengths[:, None]] = np.concatenate(
        [part for row in rows for part in (([front], row) if shift else (row,))] or [np.empty(0, np.int64)]
    )
    return out, lengths


def sources(rows: list[np.ndarray], filler: int) -> tuple[Tensor, Tensor | None]:
    """Source rows as ids [B, S] and the mask of real places, or None if none is padding."""
    ids, lengths = pad(rows, filler)
    real = np.arange(ids.shape[1]) < lengths[:, None]
    return torch.from_numpy(ids), None if real.all() else torch.from_numpy(real)


def pairs(source: list[np.ndarray], target: list[np.ndarray], pad_id: int, bos: int, eos: int,
          source_eos: int, rows: tuple[int, ...] = ()) -> Pairs:
    """A training batch: sources end in </s>; targets are read shifted right and end in </s>."""
    source_ids, real = sources([np.append(row, source_eos) for row in source], pad_id)
    ids, lengths = pad(target, pad_id, front=bos)  # [B, T]
    labels = np.concatenate([np.append(row, eos) for row in target])
    places = np.flatnonzero(np.arange(ids.shape[1]) < lengths[:, None])
    return Pairs(source_ids, real, torch.from_numpy(ids), torch.from_numpy(labels.astype(np.int64)),
                 torch.from_numpy(places), rows)
