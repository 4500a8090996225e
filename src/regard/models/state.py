"""The decoder state that a generating model keeps between steps. Rows can be reordered (beams) and replaced.

A row is a sequence that is being generated. After `expand_beams(K)` every sentence has K of them, its beams: tokens are
then read in rows [B·K, T], while what belongs to the source is kept once for each sentence.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from regard.nn.cache import BoundedKVCache, CachePositions, StateTensors
from regard.nn.layout import AttentionContext, Layout
from regard.nn.record import AttentionRecorder


class CacheLike(Protocol):
    """A part of the state with an entry for each sentence or row: a KV cache, a recurrent state."""

    cache_positions: CachePositions  # set by the state

    def expand_beams(self, beams: int) -> None: ...

    def reorder_beams(self, beams: Tensor) -> None: ...

    def reorder(self, index: Tensor) -> None: ...

    def write(self, rows: Tensor, other: Any) -> None: ...


@dataclass
class DecoderState:
    start: Tensor  # [B] how many tokens each row had read when it began
    layers: Sequence[tuple[Any, ...]]  # for each decoder layer its caches
    source_real: Tensor | None  # [B, S]
    source_length: int
    length: int  # the most target tokens of a row
    record: AttentionRecorder | None = None  # where attention weights are requested
    cache_positions: CachePositions = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.cache_positions = CachePositions(self.start, self.length)
        for part in self._parts():
            part.cache_positions = self.cache_positions

    @staticmethod
    def concatenate(states: "Sequence[DecoderState]") -> "DecoderState":
        """The sentences of several states that have just begun; sources are padded to the longest."""
        longest = max(state.source_length for state in states)
        reals = [state._real(longest) for state in states]
        layers = [
            tuple(type(same[0]).concatenate(same) for same in zip(*layer, strict=True))
            for layer in zip(*(state.layers for state in states), strict=True)
        ]
        start = torch.cat([state.start for state in states])
        return DecoderState(start, layers, torch.cat(reals), longest, states[0].length)

    def _real(self, length: int) -> Tensor:
        """The padding mask of the source, at this length [B, length]."""
        real = torch.zeros(len(self.start), length, dtype=torch.bool, device=self.start.device)
        real[:, : self.source_length] = True if self.source_real is None else self.source_real
        return real

    def _parts(self) -> list[CacheLike]:
        return [part for layer in self.layers for part in layer]

    @property
    def rolls_back(self) -> bool:
        """Whether what was read can be taken back: all of it is kept by position, in no ring and no recurrent state."""
        return not any(isinstance(part, StateTensors | BoundedKVCache) for part in self._parts())

    @property
    def position(self) -> Tensor:
        """How many tokens each row has read [B·K]."""
        return self.cache_positions.position

    # --- used by models ----------------------------------------------------------------------------------------

    def self_context(self, steps: int) -> AttentionContext:
        """The context of self-attention: `steps` more tokens of every row attend to their past and to themselves."""
        return self.cache_positions.self_context(steps)

    def cross_context(self, steps: int) -> AttentionContext:
        """The context in which they attend to the source; there is a row of keys for each sentence."""
        return AttentionContext(
            self.cache_positions.next_layout(steps),
            Layout.of(self.source_length, self.source_real, self.position.device),
        )

    def advance(self, steps: int) -> None:
        self.cache_positions.advance(steps)

    # --- used by searches --------------------------------------------------------------------------------------

    def expand_beams(self, beams: int) -> None:
        """Every sentence becomes so many rows; once, after the start."""
        if beams == 1:
            return
        if self.record is not None:
            self.record.reorder(torch.arange(len(self.position), device=self.position.device).repeat_interleave(beams))
        for part in self._parts():
            part.expand_beams(beams)
        self.cache_positions.expand_beams(beams)

    def reorder_beams(self, beams: Tensor) -> None:
        """Beam k of sentence b continues what beam beams[b, k] was. Recorded weights are not moved."""
        for part in self._parts():
            part.reorder_beams(beams)
        self.cache_positions.reorder_beams(beams)

    @contextmanager
    def reading_prompts(self, ends: Tensor) -> Iterator[None]:
        """Rows read padded prompts within; each then continues where its own ends [B]."""
        with self.cache_positions.reading_prompts(ends):
            yield
            for part in self._parts():
                if isinstance(part, StateTensors):
                    part.rewind(ends)

    def reorder(self, index: Tensor) -> None:
        """Sentence r becomes what sentence index[r] was; the index may repeat sentences or leave some out."""
        if self.record is not None:
            first = index[:, None] * self.cache_positions.beams
            self.record.reorder((first + torch.arange(self.cache_positions.beams, device=index.device)).flatten())
        if self.source_real is not None:
            self.source_real = self.source_real[index]
        for part in self._parts():
            part.reorder(index)
        self.cache_positions.reorder(index)

    def release(self, rows: list[int]) -> None:
        """Those sentences are done; their positions no longer count."""
        self.cache_positions.release(rows)

    def write(self, rows: Tensor, other: "DecoderState") -> None:
        """Replace sentences by those of another state, whose source and target lengths are at most this one's."""
        if self.record is not None:
            raise ValueError("rows whose attention is recorded cannot be replaced")
        if self.source_real is None and self.source_length:
            sentences = len(self.position) // self.cache_positions.beams
            self.source_real = torch.ones(sentences, self.source_length, dtype=torch.bool, device=rows.device)
        if self.source_real is not None:
            self.source_real[rows] = False
            self.source_real[rows, : other.source_length] = True if other.source_real is None else other.source_real
        for part, new in zip(self._parts(), other._parts(), strict=True):
            part.write(rows, new)
        self.cache_positions.write(rows, other.cache_positions)
