"""Recurrent states between decoding steps, moved with the rows as KV caches are. Knows no kind of model."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.errors import RegardError
from regard.nn.cache.kv_cache import CachePositions


@dataclass
class StateTensors:
    """Named tensors [B·K, …] that are reordered together: the state of recurrent and convolutional models."""

    tensors: dict[str, Tensor]
    source: frozenset[str] = frozenset()  # those that belong to the source: [B, …], the same for all beams
    cache_positions: CachePositions = field(init=False, repr=False)

    @staticmethod
    def concatenate(states: "Sequence[StateTensors]") -> "StateTensors":
        """The rows of several, one after the other, which have read nothing yet."""
        tensors = {name: torch.cat([state[name] for state in states]) for name in states[0].tensors}
        return type(states[0])(tensors, states[0].source)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.tensors[name] = value

    def expand_beams(self, beams: int) -> None:
        for name in self.tensors.keys() - self.source:
            self[name] = self[name].repeat_interleave(beams, 0)

    def reorder_beams(self, beams: Tensor) -> None:
        first = torch.arange(len(beams), device=beams.device)[:, None] * beams.shape[1]
        rows = (first + beams).flatten()  # [B·K]
        for name in self.tensors.keys() - self.source:
            self[name] = self[name][rows]

    def reorder(self, index: Tensor) -> None:
        for name, tensor in self.tensors.items():
            self[name] = tensor.unflatten(0, (-1, self._each(name)))[index].flatten(0, 1)

    def write(self, rows: Tensor, other: "StateTensors") -> None:
        """Replace some sentences by those of another, whose tensors may be shorter in any other dimension."""
        for name, tensor in self.tensors.items():
            each, source = self._each(name), other[name]
            new = torch.zeros(len(rows) * each, *tensor.shape[1:], dtype=tensor.dtype, device=tensor.device)
            new[tuple(slice(0, size) for size in source.shape)] = source.to(tensor.dtype)
            tensor.unflatten(0, (-1, each))[rows] = new.unflatten(0, (-1, each))

    def rewind(self, position: Tensor) -> None:
        """Continue every row from an earlier position [B]."""
        raise RegardError("a recurrent state keeps no past: it cannot go back to an earlier token")

    def _each(self, name: str) -> int:
        return 1 if name in self.source else self.cache_positions.beams
