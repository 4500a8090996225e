"""What a generating model remembers between steps. Rows can be moved (beams) and replaced (finished sentences).

A row is a sequence that is being said. After `spread(K)` every sentence has K of them, its beams: tokens are then read
in rows [B·K, T], while what belongs to the source is kept once for each sentence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.nn.cache import CachePositions
from regard.nn.layout import AttentionContext, Layout
from regard.nn.record import AttentionRecorder


class CacheLike(Protocol):
    """One thing of the state that has something for each sentence or row: an attention's keys, a recurrent state."""

    places: CachePositions  # given by the state

    def spread(self, beams: int) -> None: ...

    def branch(self, beams: Tensor) -> None: ...

    def reorder(self, index: Tensor) -> None: ...

    def write(self, rows: Tensor, other: Any) -> None: ...


@dataclass
class StateTensors:
    """Named tensors [B·K, …] that move together: what recurrent and convolutional models keep."""

    tensors: dict[str, Tensor]
    source: frozenset[str] = frozenset()  # those that belong to the source: [B, …], the same for all beams
    places: CachePositions = field(init=False, repr=False)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.tensors[name] = value

    def spread(self, beams: int) -> None:
        for name in self.tensors.keys() - self.source:
            self[name] = self[name].repeat_interleave(beams, 0)

    def branch(self, beams: Tensor) -> None:
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
            each, given = self._each(name), other[name]
            new = torch.zeros(len(rows) * each, *tensor.shape[1:], dtype=tensor.dtype, device=tensor.device)
            new[tuple(slice(0, size) for size in given.shape)] = given.to(tensor.dtype)
            tensor.unflatten(0, (-1, each))[rows] = new.unflatten(0, (-1, each))

    def _each(self, name: str) -> int:
        return 1 if name in self.source else self.places.beams


@dataclass
class DecoderState:
    start: Tensor  # [B] how many tokens each row had read when it began
    layers: Sequence[tuple[Any, ...]]  # for each decoder layer what it keeps: Parts
    source_real: Tensor | None  # [B, S]
    source_length: int
    length: int  # room for target tokens in a row
    record: AttentionRecorder | None = None  # attention weights that were asked for
    places: CachePositions = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.places = CachePositions(self.start, self.length)
        for part in self._parts():
            part.places = self.places

    @staticmethod
    def joined(states: "Sequence[DecoderState]") -> "DecoderState":
        """Sentences of several states that have just begun, one after the other; sources are padded to the longest."""
        longest = max(state.source_length for state in states)
        reals = [state._real(longest) for state in states]
        layers = [
            tuple(type(same[0]).joined(same) for same in zip(*layer, strict=True))
            for layer in zip(*(state.layers for state in states), strict=True)
        ]
        start = torch.cat([state.start for state in states])
        return DecoderState(start, layers, torch.cat(reals), longest, states[0].length)

    def _real(self, length: int) -> Tensor:
        """Which of so many places of the source are real [B, length]."""
        real = torch.zeros(len(self.start), length, dtype=torch.bool, device=self.start.device)
        real[:, : self.source_length] = True if self.source_real is None else self.source_real
        return real

    def _parts(self) -> list[CacheLike]:
        return [part for layer in self.layers for part in layer]

    @property
    def position(self) -> Tensor:
        """How many tokens each row has read [B·K]."""
        return self.places.position

    # --- what a model asks -------------------------------------------------------------------------------------

    def own(self, steps: int) -> AttentionContext:
        """The call in which `steps` more tokens of every row look at all that came before them, and at themselves."""
        return self.places.own(steps)

    def cross(self, steps: int) -> AttentionContext:
        """The call in which they look at the source; there is a row of keys for each sentence."""
        return AttentionContext(
            self.places.next(steps), Layout.of(self.source_length, self.source_real, self.position.device)
        )

    def advance(self, steps: int) -> None:
        self.places.advance(steps)

    # --- what a search asks ------------------------------------------------------------------------------------

    def spread(self, beams: int) -> None:
        """Every sentence goes on in so many rows; once, after the start."""
        if beams == 1:
            return
        if self.record is not None:
            self.record.reorder(torch.arange(len(self.position), device=self.position.device).repeat_interleave(beams))
        for part in self._parts():
            part.spread(beams)
        self.places.spread(beams)

    def branch(self, beams: Tensor) -> None:
        """Beam k of sentence b goes on from what beam beams[b, k] was. What is recorded stays where it was seen."""
        for part in self._parts():
            part.branch(beams)
        self.places.branch(beams)

    def go_back(self, position: Tensor) -> None:
        """Let every row go on from an earlier position [B]; what it has read from there on is overwritten."""
        self.places.go_back(position)

    def reorder(self, index: Tensor) -> None:
        """Sentence r becomes what sentence index[r] was; the index may repeat sentences or leave some out."""
        if self.record is not None:
            first = index[:, None] * self.places.beams
            self.record.reorder((first + torch.arange(self.places.beams, device=index.device)).flatten())
        if self.source_real is not None:
            self.source_real = self.source_real[index]
        for part in self._parts():
            part.reorder(index)
        self.places.reorder(index)

    def release(self, rows: list[int]) -> None:
        """Those sentences are done; they need not be served any more."""
        self.places.release(rows)

    def write(self, rows: Tensor, other: "DecoderState") -> None:
        """Replace sentences by those of another state that has room for no more source and target than this one."""
        if self.record is not None:
            raise ValueError("rows whose attention is recorded cannot be replaced")
        if self.source_real is None and self.source_length:
            sentences = len(self.position) // self.places.beams
            self.source_real = torch.ones(sentences, self.source_length, dtype=torch.bool, device=rows.device)
        if self.source_real is not None:
            self.source_real[rows] = False
            self.source_real[rows, : other.source_length] = True if other.source_real is None else other.source_real
        for part, new in zip(self._parts(), other._parts(), strict=True):
            part.write(rows, new)
        self.places.write(rows, other.places)
