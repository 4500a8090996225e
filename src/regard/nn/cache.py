"""Keys and values kept between decoding steps, in storage that is fixed when decoding starts and never moved by a beam.

A sentence may go on in K ways (beams), each a row of what a model reads. They share the sentence's storage: place p of
beam k is slot p·K + k, and `Places.history` says whose slots a beam has come through. So a beam that goes on from
another takes over its history, and no key is copied.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn import dispatch
from regard.nn.layout import AttentionContext, Layout

BEAM_DTYPE = torch.int16  # how the number of a beam is kept
MIN_SLOTS = 16  # slots that a CPU reads at once: fewer, and products of many small matrices take twice as long


@dataclass
class CachePositions:
    """Where every row of a decoding stands; one object, shared by all that keep something for those rows."""

    position: Tensor  # [B·K] how many tokens each row has read
    length: int  # L, room for tokens in a row
    beams: int = 1  # K
    history: Tensor | None = None  # [B, K, L] which beam wrote each place of a beam's past, K: none; None: K is 1
    filled: int = 0  # no row has read more tokens than this …
    least: int = 0  # … and none less than this; both are known without asking the device
    _bounds: list[tuple[int, int] | None] = field(init=False, repr=False)  # (least, filled) of each sentence when …
    _clock: int = field(default=0, init=False, repr=False)  # … so many tokens had been read here
    _next: tuple[int, Tensor] | None = field(default=None, init=False, repr=False)
    _moves: tuple[Tensor, Tensor, Tensor] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._bounds = [(self.least, self.filled)] * len(self.position)

    # --- reading -----------------------------------------------------------------------------------------------

    @property
    def level(self) -> bool:
        """Whether all rows are known to stand at one place, where there is room."""
        return self.least == self.filled < self.length

    def own(self, steps: int) -> AttentionContext:
        """The call in which `steps` more tokens of every row look at all that came before them, and at themselves."""
        filled, device = min(self.filled + steps, self.length), self.position.device
        queries = self.next(steps)
        if self.history is None:
            return AttentionContext(queries, Layout.of(filled, device=device))
        past = self.past(steps).flatten(0, 1)[:, None].expand(-1, steps, -1)  # [B·K, T, slots]
        slots = torch.arange(filled * self.beams, device=device)
        return AttentionContext(replace(queries, past=past), Layout((slots // self.beams)[None], filled))

    def reach(self) -> int:
        """How many places one more token may read: up to the longest row's, or as many as are read no slower."""
        fewest = MIN_SLOTS if dispatch.on_cpu(self.position.device) and not self.level else 0
        return min(max(self.filled + 1, -(-fewest // self.beams)), self.length)

    def past(self, steps: int, reach: int = 0) -> Tensor:
        """Which slots [B, K, slots] each beam has come through; those of the next tokens are its own."""
        assert self.history is not None
        beam = torch.arange(self.beams, dtype=BEAM_DTYPE, device=self.position.device)
        at = self.next(steps).position.unflatten(0, (-1, self.beams))  # [B, K, T]
        self.history.scatter_(2, at, beam[:, None].expand_as(at))
        filled = reach or min(self.filled + steps, self.length)
        return (self.history[..., :filled, None] == beam).flatten(2)

    def next(self, steps: int) -> Layout:
        """Where the next tokens stand [B·K, T]. A row that is done and released stays at the last place in use."""
        end, device = min(self.filled + steps, self.length), self.position.device
        places = self.position[:, None]
        if steps > 1:
            places = places + torch.arange(steps, device=device)
        return Layout(places.clamp(max=end - 1), end, start=self.least)

    def slots(self, steps: int, heads: int) -> Tensor:
        """Where the next tokens' keys [B·K, H, T, d] go in storage [B·H·L·K, d]; the same for all layers."""
        if self._next is None or self._next[0] != heads:
            row = torch.arange(len(self.position), device=self.position.device)[:, None]  # [B·K, 1]
            head = row // self.beams * heads + torch.arange(heads, device=row.device)  # [B·K, H]
            place = self.next(steps).position * self.beams + row % self.beams  # [B·K, T]
            slots = head[..., None] * (self.length * self.beams) + place[:, None]  # [B·K, H, T]
            self._next = heads, slots.flatten()
        return self._next[1]

    def advance(self, steps: int) -> None:
        self.position = self.position + steps
        self.pass_by(steps)

    def go_back(self, position: Tensor) -> None:
        """Let every row go on from an earlier position [B]; what it has read from there on is overwritten."""
        self.position, self.least = position, 0
        if self.history is not None:
            self.history = self.history.masked_fill(~self._before(), self.beams)
        self._bounds = [(-self._clock, self.filled - self._clock)] * len(self._bounds)

    def pass_by(self, steps: int) -> None:
        """What is known without the device, once it has read `steps` more tokens."""
        self._clock, self._next = self._clock + steps, None
        self.filled, self.least = min(self.filled + steps, self.length), self.least + steps

    @contextmanager
    def assuming(self, filled: int) -> Iterator[None]:
        """As if so many tokens might have been read: shapes are then those of a bucket, whoever stands where."""
        known = self.filled, self.least, self._clock
        self.filled, self.least = filled, 0
        try:
            yield
        finally:
            (self.filled, self.least, self._clock), self._next = known, None

    # --- moving rows -------------------------------------------------------------------------------------------

    def release(self, rows: list[int]) -> None:
        """Those sentences are done: where they stand is of no interest any more."""
        for row in rows:
            self._bounds[row] = None
        self._bound()

    def spread(self, beams: int) -> None:
        """Every row becomes `beams` rows, which have the same past; it stands in the slots of the first."""
        past = torch.zeros(len(self.position), beams, self.length, dtype=BEAM_DTYPE, device=self.position.device)
        self.position, self.beams = self.position.repeat_interleave(beams), beams
        self.history = past.masked_fill_(~self._before(), beams)

    def branch(self, beams: Tensor) -> None:
        """Beam k of sentence b goes on from what beam beams[b, k] was."""
        if self.history is not None:
            self.history = self.history.gather(1, beams[..., None].expand(-1, -1, self.length))

    def reorder(self, index: Tensor) -> None:
        """Sentence r becomes what sentence index[r] was."""
        self.position = self.position.unflatten(0, (-1, self.beams))[index].flatten()
        if self.history is not None:
            self.history = self.history[index]
        self._bounds, self._moves = [self._bounds[n] for n in index.tolist()], None
        self._bound()

    def moves(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Which rows change in a reordering, and what they become; asked by every layer."""
        if self._moves is None or self._moves[0] is not index:
            to = (index != torch.arange(len(index), device=index.device)).nonzero()[:, 0]
            self._moves = index, to, index[to]
        return self._moves[1:]

    def write(self, rows: Tensor, other: "CachePositions") -> None:
        """Replace sentences by those of another, which has no more room and as many beams."""
        self.position.view(-1, self.beams)[rows] = other.position.view(-1, self.beams)
        if self.history is not None and other.history is not None:
            self.history[rows] = self.beams
            self.history[rows, :, : other.length] = other.history
        for row in rows.tolist():
            self._bounds[row] = other.least - self._clock, other.filled - self._clock
        self._bound()

    def _bound(self) -> None:
        known = [bounds for bounds in self._bounds if bounds is not None] or [(-self._clock, -self._clock)]
        self.least = min(low for low, _ in known) + self._clock
        self.filled = min(max(high for _, high in known) + self._clock, self.length)

    def _before(self) -> Tensor:
        """[B, K, L] True at places that have been read."""
        return torch.arange(self.length, device=self.position.device) < self.position.view(-1, self.beams, 1)


def _kept(x: Tensor, weighs: bool) -> torch.dtype:
    """In what keys and values are kept: a CPU attends in float32 several times as fast as in half precision.

    Where a choice `weighs`, they meet weights of its own, which have the type of x.
    """
    return torch.promote_types(x.dtype, torch.float32) if dispatch.on_cpu(x.device) and not weighs else x.dtype


def reorder_rows(index: Tensor, places: CachePositions, filled: int, *kept: Tensor) -> list[Tensor]:
    """Row r becomes what row index[r] was, up to `filled` of the third dimension. A CPU copies only what moves."""
    count, room = len(index), min(x.untyped_storage().nbytes() // (x.stride(0) * x.element_size()) for x in kept)
    if not dispatch.on_cpu(kept[0].device) or count > room:
        return [x[index] for x in kept]
    to, of = places.moves(index)
    made = [x.as_strided((count, *x.shape[1:]), x.stride()) for x in kept]  # what was left there is hidden from all
    for new, old in zip(made, kept, strict=True):
        new.narrow(2, 0, filled).index_copy_(0, to, old.narrow(2, 0, filled).index_select(0, of))
    return made


@dataclass
class KVCache:
    """One attention's keys and values of what rows have said. Rows are written where they stand, each at its own."""

    keys: Tensor  # [B, H, L·K, d_k]
    values: Tensor  # [B, H, L·K, d_v]
    places: CachePositions = field(init=False, repr=False)  # the decoding state's

    @staticmethod
    def empty(rows: int, heads: int, length: int, d_k: int, d_v: int, like: Tensor, weighs: bool = False) -> "KVCache":
        def room(size: int) -> Tensor:
            return torch.zeros(rows, heads, length, size, dtype=_kept(like, weighs), device=like.device)

        return KVCache(room(d_k), room(d_v))

    @staticmethod
    def joined(caches: "Sequence[KVCache]") -> "KVCache":
        """Room for the rows of several that hold nothing yet."""
        rows, first = sum(len(cache.keys) for cache in caches), caches[0]
        return KVCache(
            first.keys.new_zeros(rows, *first.keys.shape[1:]), first.values.new_zeros(rows, *first.values.shape[1:])
        )

    def append(self, k: Tensor, v: Tensor, reach: int = 0) -> tuple[Tensor, Tensor]:
        """Write T new keys for each row [B·K, H, T, d]; give all slots up to the longest row's, or those of `reach`."""
        places, steps = self.places, k.shape[2]
        level = places.level and (steps == 1 or places.beams == 1)
        filled = min(places.filled + steps, places.length) * places.beams
        for kept, new in ((self.keys, k), (self.values, v)):
            new = new.to(kept.dtype)
            if level:  # all rows stand at one place: a plain copy
                new = new.transpose(1, 2).reshape(len(kept), -1, *new.shape[1::2])  # [B, K·T, H, d]
                kept[:, :, places.filled * places.beams : filled] = new.transpose(1, 2)
            else:
                kept.view(-1, kept.shape[-1]).index_copy_(0, places.slots(steps, kept.shape[1]), new.flatten(0, 2))
        filled = reach * places.beams or filled
        return self.keys.narrow(2, 0, filled), self.values.narrow(2, 0, filled)

    def apart(self, k: Tensor, v: Tensor, call: AttentionContext) -> tuple[Tensor, Tensor, AttentionContext]:
        """What `append` gave, as every beam's own past by itself [B·K, H, filled, d]; for what knows no slots."""
        history, beams = self.places.history, self.places.beams
        if history is None:
            return k, v, call
        filled = k.shape[2] // beams
        place = torch.arange(filled, device=k.device)
        slots = (place * beams + history[..., :filled].clamp(max=beams - 1)).flatten(1)[
            :, None, :, None
        ]  # [B, 1, K·filled, 1]

        def gathered(x: Tensor) -> Tensor:
            x = x.gather(2, slots.expand(-1, x.shape[1], -1, x.shape[3])).unflatten(2, (beams, filled))
            return x.transpose(1, 2).flatten(0, 1)  # [B·K, H, filled, d]

        def alone() -> AttentionContext:
            return AttentionContext(replace(call.queries, past=None), Layout.of(filled, device=k.device))

        return gathered(k), gathered(v), call.once("apart", alone)

    def spread(self, beams: int) -> None:
        def widened(x: Tensor) -> Tensor:
            wide = x.new_zeros(*x.shape[:2], x.shape[2] * beams, x.shape[3])
            if filled := self.places.filled:
                wide[:, :, : filled * beams : beams] = x[:, :, :filled]
            return wide

        self.keys, self.values = widened(self.keys), widened(self.values)

    def branch(self, beams: Tensor) -> None:
        """Nothing moves: the places know whose keys each beam sees."""

    def reorder(self, index: Tensor) -> None:
        p = self.places
        self.keys, self.values = reorder_rows(index, p, p.filled * p.beams, self.keys, self.values)

    def write(self, rows: Tensor, other: "KVCache") -> None:
        """Replace some sentences by those of another cache, whose storage may be shorter."""
        if filled := other.places.filled * other.places.beams:
            self.keys[rows, :, :filled] = other.keys[:, :, :filled]
            self.values[rows, :, :filled] = other.values[:, :, :filled]


@dataclass
class CrossKVCache:
    """One attention's keys and values of what was given, which do not change: all beams of a sentence ask the same."""

    keys: Tensor  # [B, H, S, d_k]
    values: Tensor  # [B, H, S, d_v]
    places: CachePositions = field(init=False, repr=False)

    @staticmethod
    def of(k: Tensor, v: Tensor, weighs: bool = False) -> "CrossKVCache":
        """Head by head, as they are read again and again, in storage of their own."""
        return CrossKVCache(*(x.to(_kept(x, weighs)).clone(memory_format=torch.contiguous_format) for x in (k, v)))

    @staticmethod
    def joined(memories: "Sequence[CrossKVCache]") -> "CrossKVCache":
        """Rows of several, one after the other; those that are shorter end in nothing."""
        longest = max(memory.keys.shape[2] for memory in memories)

        def padded(x: Tensor) -> Tensor:
            return F.pad(x, (0, 0, 0, longest - x.shape[2]))

        return CrossKVCache(
            torch.cat([padded(m.keys) for m in memories]), torch.cat([padded(m.values) for m in memories])
        )

    def read(self) -> tuple[Tensor, Tensor]:
        return self.keys, self.values

    def spread(self, beams: int) -> None: ...

    def branch(self, beams: Tensor) -> None: ...

    def reorder(self, index: Tensor) -> None:
        self.keys, self.values = reorder_rows(index, self.places, self.keys.shape[2], self.keys, self.values)

    def write(self, rows: Tensor, other: "CrossKVCache") -> None:
        length = other.keys.shape[2]
        self.keys[rows, :, :length] = other.keys
        self.values[rows, :, :length] = other.values
