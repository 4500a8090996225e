"""KV caches: keys and values kept between decoding steps, in storage that is fixed when decoding starts.

The K beams of a sentence are K rows of the batch and share the sentence's storage: position p of beam k is slot
p·K + k, and `CachePositions.history` says which beam wrote each position of a beam's past. So a beam that continues
another takes over its history, and no key is copied.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.errors import RegardError
from regard.nn import dispatch
from regard.nn.layout import AttentionContext, Layout

BEAM_DTYPE = torch.int16  # of the numbers of beams
Shorten = Callable[[Tensor, Tensor, AttentionContext], tuple[Tensor, Tensor, AttentionContext]]  # a compression
MIN_SLOTS = 16  # slots that a CPU reads at once: fewer, and products of many small matrices take twice as long


@dataclass
class CachePositions:
    """How many tokens every row of a decoding has read; one object, shared by all caches of a decoder state."""

    position: Tensor  # [B·K] how many tokens each row has read
    length: int  # L, the most tokens of a row
    beams: int = 1  # K
    history: Tensor | None = None  # [B, K, L] which beam wrote each position of a beam's past, K: none; None: K is 1
    filled: int = 0  # no row has read more tokens than this …
    least: int = 0  # … and none less than this; both are known without asking the device
    ends: Tensor | None = field(default=None, init=False)  # [B] where each row's own tokens end, while prompts are read
    known: int | None = None  # positions that the model can tell apart; guesses beyond them are read at the last one
    _bounds: list[tuple[int, int] | None] = field(init=False, repr=False)  # (least, filled) of each sentence when …
    _clock: int = field(default=0, init=False, repr=False)  # … so many tokens had been read here
    _next: tuple[int, Tensor] | None = field(default=None, init=False, repr=False)
    _changed: tuple[Tensor, Tensor, Tensor] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._bounds = [(self.least, self.filled)] * len(self.position)

    # --- reading -----------------------------------------------------------------------------------------------

    @property
    def aligned(self) -> bool:
        """Whether all rows are known to have the same position, with room for one token more."""
        return self.least == self.filled < self.length

    def self_context(self, steps: int) -> AttentionContext:
        """The context of self-attention: `steps` more tokens of every row attend to their past and to themselves."""
        filled, device = min(self.filled + steps, self.length), self.position.device
        return AttentionContext(self.next_layout(steps), Layout.of(filled, device=device))

    def slot_context(self, context: AttentionContext, steps: int) -> AttentionContext:
        """The same over the slots of all beams of a sentence, where there are several."""
        if self.history is None:
            return context

        def over_slots() -> AttentionContext:
            filled = min(self.filled + steps, self.length)
            past = self.visible_slots(steps).flatten(0, 1)[:, None].expand(-1, steps, -1)  # [B·K, T, slots]
            slots = torch.arange(filled * self.beams, device=past.device)
            queries = replace(context.queries, past=past)
            return AttentionContext(queries, Layout((slots // self.beams)[None], filled))

        return context.once("over slots", over_slots)

    def read_length(self, steps: int = 1) -> int:
        """How many positions the next tokens read: up to the longest row's, or as many as are read no slower."""
        fewest = MIN_SLOTS if dispatch.on_cpu(self.position.device) and not self.aligned else 0
        return min(max(self.filled + steps, -(-fewest // self.beams)), self.length)

    def visible_slots(self, steps: int, length: int = 0) -> Tensor:
        """Which slots [B, K, slots] hold each beam's past; those of the next tokens are its own."""
        assert self.history is not None
        self.mark_own(steps)
        beam = torch.arange(self.beams, dtype=BEAM_DTYPE, device=self.position.device)
        filled = length or min(self.filled + steps, self.length)
        return (self.history[..., :filled, None] == beam).flatten(2)

    def mark_own(self, steps: int) -> None:
        """Every beam writes its next tokens itself."""
        if self.history is not None:
            at = self._next_positions(steps).unflatten(0, (-1, self.beams))  # [B, K, T]
            beam = torch.arange(self.beams, dtype=BEAM_DTYPE, device=at.device)
            self.history.scatter_(2, at, beam[:, None].expand_as(at))

    def next_layout(self, steps: int) -> Layout:
        """The positions of the next tokens [B·K, T]."""
        end, room = min(self.filled + steps, self.length), self.known or self.length
        position = self._next_positions(steps)
        return Layout(position if room >= end else position.clamp(max=room - 1), min(end, room), start=self.least)

    def _next_positions(self, steps: int) -> Tensor:
        """Where the next tokens are kept [B·K, T]. A row that is done and released stays at the last one in use."""
        end, device = min(self.filled + steps, self.length), self.position.device
        position = self.position[:, None]
        if steps > 1:
            position = position + torch.arange(steps, device=device)
        return position.clamp(max=end - 1)

    def write_slots(self, steps: int, heads: int) -> Tensor:
        """The slots of the next tokens' keys [B·K, H, T, d] in storage [B·H·L·K, d]; the same for all layers."""
        if self._next is None or self._next[0] != heads:
            row = torch.arange(len(self.position), device=self.position.device)[:, None]  # [B·K, 1]
            head = row // self.beams * heads + torch.arange(heads, device=row.device)  # [B·K, H]
            own = self._next_positions(steps) * self.beams + row % self.beams  # [B·K, T]
            slots = head[..., None] * (self.length * self.beams) + own[:, None]  # [B·K, H, T]
            self._next = heads, slots.flatten()
        return self._next[1]

    def advance(self, steps: int) -> None:
        self.position = self.position + steps
        self.advance_bounds(steps)

    @contextmanager
    def reading_prompts(self, ends: Tensor) -> Iterator[None]:
        """Rows read padded prompts; each then continues where its own ends [B], and what follows is overwritten."""
        self.ends = ends
        try:
            yield
        finally:
            self.ends = None
        self.position, self.least = ends, 0
        if self.history is not None:
            self.history = self.history.masked_fill(~self._before(), self.beams)
        self._bounds = [(-self._clock, self.filled - self._clock)] * len(self._bounds)

    def rollback(self, position: Tensor, steps: int) -> None:
        """Of the last `steps` tokens each row keeps the first ones, up to a position [B]; others are overwritten."""
        self.position, self._next = position, None
        self._keep_some(steps)

    def _keep_some(self, steps: int) -> None:
        """Of the last `steps` tokens every row keeps at least one."""
        self.least -= steps - 1
        self._bounds = [bounds and (bounds[0] - steps + 1, bounds[1]) for bounds in self._bounds]

    def know(self, positions: Sequence[int], ahead: int) -> None:
        """The device has told where each row was; since then it has read at most `ahead` tokens more."""
        for row, at in enumerate(positions):
            if self._bounds[row] is not None:
                self._bounds[row] = at - self._clock, at + ahead - self._clock
        self._bound()

    @contextmanager
    def trial(self) -> Iterator[None]:
        """What is read inside does not count: afterwards it is overwritten."""
        before = self.position, self.filled, self.least, self._clock
        try:
            yield
        finally:
            (self.position, self.filled, self.least, self._clock), self._next = before, None

    def advance_bounds(self, steps: int, whole: bool = True) -> None:
        """Advance by `steps` tokens what is known without asking the device; if not `whole`, each row kept some."""
        self._clock, self._next = self._clock + steps, None
        self.filled, self.least = min(self.filled + steps, self.length), self.least + steps
        if not whole:
            self._keep_some(steps)

    @contextmanager
    def assume_filled(self, filled: int) -> Iterator[None]:
        """As if some row had read so many tokens: shapes are then those of a bucket, whatever the positions are."""
        known = self.filled, self.least, self._clock
        self.filled, self.least = filled, 0
        try:
            yield
        finally:
            (self.filled, self.least, self._clock), self._next = known, None

    # --- moving rows -------------------------------------------------------------------------------------------

    def release(self, rows: list[int]) -> None:
        """Those sentences are done: their positions no longer count."""
        for row in rows:
            self._bounds[row] = None
        self._bound()

    def expand_beams(self, beams: int) -> None:
        """Every row becomes `beams` rows with the same past, which is in the slots of the first."""
        past = torch.zeros(len(self.position), beams, self.length, dtype=BEAM_DTYPE, device=self.position.device)
        self.position, self.beams = self.position.repeat_interleave(beams), beams
        self.history = past.masked_fill_(~self._before(), beams)

    def reorder_beams(self, beams: Tensor) -> None:
        """Beam k of sentence b continues what beam beams[b, k] was."""
        if self.history is not None:
            self.history = self.history.gather(1, beams[..., None].expand(-1, -1, self.length))

    def reorder(self, index: Tensor) -> None:
        """Sentence r becomes what sentence index[r] was."""
        self.position = self.position.unflatten(0, (-1, self.beams))[index].flatten()
        if self.history is not None:
            self.history = self.history[index]
        self._bounds, self._changed = [self._bounds[n] for n in index.tolist()], None
        self._bound()

    def changed_rows(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Which rows change in a reordering, and what they become; kept, since every layer needs it."""
        if self._changed is None or self._changed[0] is not index:
            to = (index != torch.arange(len(index), device=index.device)).nonzero()[:, 0]
            self._changed = index, to, index[to]
        return self._changed[1:]

    def write(self, rows: Tensor, other: "CachePositions") -> None:
        """Replace sentences by those of another, which is no longer and has as many beams."""
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
        """[B, K, L] True at positions that have been read."""
        return torch.arange(self.length, device=self.position.device) < self.position.view(-1, self.beams, 1)


def cache_dtype(x: Tensor, has_weights: bool) -> torch.dtype:
    """The dtype of keys and values: a CPU attends in float32 several times as fast as in half precision.

    A choice that `has_weights` multiplies them with weights of its own, which have the dtype of x.
    """
    return torch.promote_types(x.dtype, torch.float32) if dispatch.on_cpu(x.device) and not has_weights else x.dtype


def reorder_rows(index: Tensor, positions: CachePositions, filled: int, *kept: Tensor) -> list[Tensor]:
    """Row r becomes what row index[r] was, up to `filled` of the third dimension. A CPU copies only what moves."""
    count, room = len(index), min(x.untyped_storage().nbytes() // (x.stride(0) * x.element_size()) for x in kept)
    if not dispatch.on_cpu(kept[0].device) or count > room:
        return [x[index] for x in kept]
    to, of = positions.changed_rows(index)
    moved = [x.as_strided((count, *x.shape[1:]), x.stride()) for x in kept]  # what is left there is masked
    for new, old in zip(moved, kept, strict=True):
        new.narrow(2, 0, filled).index_copy_(0, to, old.narrow(2, 0, filled).index_select(0, of))
    return moved


@dataclass
class KVCache:
    """Keys and values of one self-attention. Each row is written at its own position."""

    keys: Tensor  # [B, H, L·K, d_k]
    values: Tensor  # [B, H, L·K, d_v]
    cache_positions: CachePositions = field(init=False, repr=False)  # the decoder state's
    counts: bool = field(default=False, init=False)  # whether the positions are its own, so that it advances them

    @staticmethod
    def empty(
        rows: int, heads: int, length: int, d_k: int, d_v: int, like: Tensor, has_weights: bool = False
    ) -> "KVCache":
        def zeros(size: int) -> Tensor:
            return torch.zeros(rows, heads, length, size, dtype=cache_dtype(like, has_weights), device=like.device)

        return KVCache(zeros(d_k), zeros(d_v))

    @staticmethod
    def concatenate(caches: "Sequence[KVCache]") -> "KVCache":
        """Storage for the rows of several caches that are still empty."""
        rows, first = sum(len(cache.keys) for cache in caches), caches[0]
        return KVCache(
            first.keys.new_zeros(rows, *first.keys.shape[1:]), first.values.new_zeros(rows, *first.values.shape[1:])
        )

    def context(self, steps: int, mask: Tensor | None = None) -> AttentionContext:
        """The context of the next `steps` tokens of every row, for a caller who has no decoder state."""
        if mask is not None:
            raise RegardError("a KV cache takes no mask: all of its keys are real")
        positions = self.cache_positions
        if positions.filled + steps > positions.length:
            raise RegardError(
                f"the KV cache has room for {positions.length} tokens, {positions.filled} of which are taken, and "
                f"{steps} more came; make it longer"
            )
        return positions.self_context(steps)

    def extend(
        self, k: Tensor, v: Tensor, context: AttentionContext, shorten: Shorten | None = None, ordered: bool = False
    ) -> tuple[Tensor, Tensor, AttentionContext]:
        """Add T new keys for each row; give all that they may see, as the score takes it, and the context of that.

        `shorten` compresses keys; `ordered` asks for each beam's own keys, by position.
        """
        context = self.cache_positions.slot_context(context, k.shape[2])
        k, v = self.append(k, v)
        if shorten is not None or ordered:
            k, v, context = self.per_beam(k, v, context)
        return (k, v, context) if shorten is None else shorten(k, v, context)

    def append(self, k: Tensor, v: Tensor, length: int = 0) -> tuple[Tensor, Tensor]:
        """Write T new keys for each row [B·K, H, T, d]; give all slots up to the longest row's, or of `length`."""
        positions, steps = self.cache_positions, k.shape[2]
        aligned = positions.aligned and (steps == 1 or positions.beams == 1)
        filled = min(positions.filled + steps, positions.length) * positions.beams
        for kept, new in ((self.keys, k), (self.values, v)):
            new = new.to(kept.dtype)
            if aligned:  # a plain copy
                new = new.transpose(1, 2).reshape(len(kept), -1, *new.shape[1::2])  # [B, K·T, H, d]
                kept[:, :, positions.filled * positions.beams : filled] = new.transpose(1, 2)
            else:
                slots = positions.write_slots(steps, kept.shape[1])
                kept.view(-1, kept.shape[-1]).index_copy_(0, slots, new.flatten(0, 2))
        filled = length * positions.beams or filled
        return self.keys.narrow(2, 0, filled), self.values.narrow(2, 0, filled)

    def per_beam(self, k: Tensor, v: Tensor, context: AttentionContext) -> tuple[Tensor, Tensor, AttentionContext]:
        """The result of `append` as every beam's own past [B·K, H, filled, d], for what knows no slots."""
        history, beams = self.cache_positions.history, self.cache_positions.beams
        if history is None:
            return k, v, context
        filled = k.shape[2] // beams
        slots = torch.arange(filled, device=k.device) * beams + history[..., :filled].clamp(max=beams - 1)
        index = slots.flatten(1)[:, None, :, None]  # [B, 1, K·filled, 1]

        def gathered(x: Tensor) -> Tensor:
            x = x.gather(2, index.expand(-1, x.shape[1], -1, x.shape[3])).unflatten(2, (beams, filled))
            return x.transpose(1, 2).flatten(0, 1)  # [B·K, H, filled, d]

        def alone() -> AttentionContext:
            return AttentionContext(replace(context.queries, past=None), Layout.of(filled, device=k.device))

        return gathered(k), gathered(v), context.once("per beam", alone)

    def expand_beams(self, beams: int) -> None:
        def widened(x: Tensor) -> Tensor:
            wide = x.new_zeros(*x.shape[:2], x.shape[2] * beams, x.shape[3])
            if filled := self.cache_positions.filled:
                wide[:, :, : filled * beams : beams] = x[:, :, :filled]
            return wide

        self.keys, self.values = widened(self.keys), widened(self.values)

    def reorder_beams(self, beams: Tensor) -> None:
        """Nothing moves: the history says which slots each beam sees."""

    def reorder(self, index: Tensor) -> None:
        p = self.cache_positions
        self.keys, self.values = reorder_rows(index, p, p.filled * p.beams, self.keys, self.values)

    def write(self, rows: Tensor, other: "KVCache") -> None:
        """Replace some sentences by those of another cache, whose storage may be shorter."""
        if filled := other.cache_positions.filled * other.cache_positions.beams:
            self.keys[rows, :, :filled] = other.keys[:, :, :filled]
            self.values[rows, :, :filled] = other.values[:, :, :filled]


@dataclass
class CrossKVCache:
    """Keys and values of one cross-attention, which do not change: all beams of a sentence share them."""

    keys: Tensor  # [B, H, S, d_k]
    values: Tensor  # [B, H, S, d_v]
    cache_positions: CachePositions = field(init=False, repr=False)

    @staticmethod
    def of(k: Tensor, v: Tensor, has_weights: bool = False) -> "CrossKVCache":
        """Head by head, in storage of their own, since they are read again and again."""
        k, v = (x.to(cache_dtype(x, has_weights)).clone(memory_format=torch.contiguous_format) for x in (k, v))
        return CrossKVCache(k, v)

    @staticmethod
    def concatenate(caches: "Sequence[CrossKVCache]") -> "CrossKVCache":
        """The rows of several caches, one after the other; shorter ones are padded with zeros."""
        longest = max(cache.keys.shape[2] for cache in caches)

        def padded(x: Tensor) -> Tensor:
            return F.pad(x, (0, 0, 0, longest - x.shape[2]))

        return CrossKVCache(torch.cat([padded(c.keys) for c in caches]), torch.cat([padded(c.values) for c in caches]))

    def read(self) -> tuple[Tensor, Tensor]:
        return self.keys, self.values

    def expand_beams(self, beams: int) -> None: ...

    def reorder_beams(self, beams: Tensor) -> None: ...

    def reorder(self, index: Tensor) -> None:
        self.keys, self.values = reorder_rows(index, self.cache_positions, self.keys.shape[2], self.keys, self.values)

    def write(self, rows: Tensor, other: "CrossKVCache") -> None:
        length = other.keys.shape[2]
        self.keys[rows, :, :length] = other.keys
        self.values[rows, :, :length] = other.values
