"""A bounded KV cache: of a row's past it keeps only what a window, blocks or a compression leave later queries to see.

A ring buffer: what no query sees any more gives its slot to what comes. Compressed keys are kept as such, beside the
keys of the group that is not complete yet. Slots follow from positions, on the device, so that rows may stand anywhere
and steps may be captured. Which of the keys a query sees is still the pattern's to say, by their positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.nn.cache.kv_cache import BEAM_DTYPE, KVCache, Shorten, cache_dtype, reorder_rows
from regard.nn.layout import AttentionContext, Layout
from regard.nn.pattern import Retention

Keys = tuple[Tensor, Tensor, AttentionContext]  # keys, values, and the context in which they are seen


@dataclass(frozen=True)
class SlotRing:
    """Which slot an entry has. An entry is a key, or one made of `stride` neighbours; a row's are counted from 0."""

    first: int  # entries that stay
    ring: int  # slots in which all others take turns
    stride: int = 1

    @staticmethod
    def of(retention: Retention | None, length: int, stride: int = 1) -> "SlotRing":
        """For rows of at most `length` positions; a retention of None keeps them all."""
        entries = max(-(-length // stride), 1)
        if retention is None:
            return SlotRing(0, entries, stride)
        first = min(-(-retention.first // stride), entries)
        ring = -(-retention.last // stride) + (stride > 1)  # a group that is not complete has a slot, too
        return SlotRing(first, max(min(ring, entries - first), 1), stride)

    @property
    def slots(self) -> int:
        return self.first + self.ring

    def slot(self, entry: Tensor) -> Tensor:
        return torch.where(entry < self.first, entry, self.first + (entry - self.first) % self.ring)

    def entries(self, last: Tensor) -> Tensor:
        """Which entry each slot holds when `last` [N] is the last that came [N, slots]; -1: none."""
        slot, last = torch.arange(self.slots, device=last.device), last[:, None]
        newest = torch.where(slot < self.first, slot, last - (last - slot) % self.ring)
        return torch.where(slot <= last, newest, -1)

    def position(self, entry: Tensor) -> Tensor:
        """The last position that an entry covers; 0 for none."""
        return (entry * self.stride + self.stride - 1).clamp(min=0)


@dataclass(frozen=True)
class _Step:
    """What all caches with the same slots share while a token is read."""

    context: AttentionContext
    count: int  # of the slots that are read, beams aside
    slots: Tensor  # [B·K·H] where each row's entry goes in storage [B·H·slots·K, d]
    open_slots: Tensor  # [B·K·H] where its key goes in a group that is not complete, in [B·H·stride·K, d]
    group: Tensor | None  # [B·K, stride] where the keys of its group are; None: in order


@dataclass
class BoundedKVCache(KVCache):
    """Keys and values [B, H, slots·K, d] of one self-attention, as far as later queries may see them."""

    ring: SlotRing
    open_keys: Tensor  # [B, H, stride·K, d] of the group that is not complete, before they are compressed
    open_values: Tensor

    @staticmethod
    def build(
        ring: SlotRing, rows: int, heads: int, sizes: tuple[int, int, int, int], like: Tensor, has_weights: bool
    ) -> "BoundedKVCache":
        """Empty storage; `sizes` are d_k and d_v, then both before compression."""
        dtype, group = cache_dtype(like, has_weights), ring.stride if ring.stride > 1 else 0
        counts = (ring.slots, ring.slots, group, group)
        keys, values, open_keys, open_values = (
            torch.zeros(rows, heads, count, size, dtype=dtype, device=like.device)
            for count, size in zip(counts, sizes, strict=True)
        )
        return BoundedKVCache(keys, values, ring, open_keys, open_values)

    @staticmethod
    def concatenate(caches: Sequence[KVCache]) -> KVCache:
        first, rows = caches[0], sum(len(cache.keys) for cache in caches)
        assert isinstance(first, BoundedKVCache)
        kept = (first.keys, first.values, first.open_keys, first.open_values)
        keys, values, *group = (x.new_zeros(rows, *x.shape[1:]) for x in kept)
        return BoundedKVCache(keys, values, first.ring, *group)

    # --- reading -----------------------------------------------------------------------------------------------

    def extend(
        self, k: Tensor, v: Tensor, context: AttentionContext, shorten: Shorten | None = None, ordered: bool = False
    ) -> Keys:
        """As KVCache has it; what is kept is compressed already."""
        k, v = k.to(self.keys.dtype), v.to(self.values.dtype)
        if k.shape[2] > 1:
            return self._read_many(k, v, context, shorten, ordered)
        heads = self.keys.shape[1]
        step = context.once(("slots", self.ring, heads), lambda: self._step(context, heads))
        if shorten is not None:
            k, v = self._group(k, v, step, shorten)
        _put(self.keys, k, step.slots)
        _put(self.values, v, step.slots)
        count = step.count * self.cache_positions.beams
        read = self.keys.narrow(2, 0, count), self.values.narrow(2, 0, count), step.context
        return _in_order(*read) if ordered else read

    def _step(self, context: AttentionContext, heads: int) -> _Step:
        p, ring, stride = self.cache_positions, self.ring, self.ring.stride
        at = p.next_layout(1).position[:, 0]  # [B·K]
        entry, row = at // stride, torch.arange(len(at), device=at.device)
        count = min(-(-min(p.filled + 1, p.length) // stride), ring.slots)
        held = ring.entries(entry.view(-1, p.beams)[:, 0])[:, :count]  # [B, slots]: a sentence's beams are equally long
        position, real, past, group = ring.position(held), held >= 0, None, None
        if p.history is not None:
            p.mark_own(1)
            wrote = p.history.gather(2, position.clamp(max=p.length - 1)[:, None].expand(-1, p.beams, -1))
            own = wrote[..., None] == torch.arange(p.beams, dtype=BEAM_DTYPE, device=at.device)  # [B, K, slots, K]
            past = (own & real[:, None, :, None]).flatten(2).flatten(0, 1)[:, None]  # [B·K, 1, slots·K]
            position, real = (x.repeat_interleave(p.beams, 1) for x in (position, real))
            group = self._group_slots(entry * stride) if stride > 1 else None
        queries, reach = context.queries, None if ring.first else (ring.ring + 1) * stride
        seen = AttentionContext(
            replace(queries, past=past), Layout(position, queries.end + stride - 1, real), reach=reach
        )
        head = (row // p.beams * heads)[:, None] + torch.arange(heads, device=at.device)  # [B·K, H]
        slots, open_slots = (
            ((head * each + slot[:, None]) * p.beams + (row % p.beams)[:, None]).flatten()
            for each, slot in ((ring.slots, ring.slot(entry)), (stride, at % stride))
        )
        return _Step(seen, count, slots, open_slots, group)

    def _group(self, k: Tensor, v: Tensor, step: _Step, shorten: Shorten) -> tuple[Tensor, Tensor]:
        """The new keys with those of their group, compressed [B·K, H, 1, d]: nobody sees them before it is complete."""
        _put(self.open_keys, k, step.open_slots)
        _put(self.open_values, v, step.open_slots)
        if step.group is None:
            return _shortened(self.open_keys, self.open_values, shorten)
        return _shortened(_taken(self.open_keys, step.group), _taken(self.open_values, step.group), shorten)

    def _group_slots(self, first: Tensor) -> Tensor:
        """Where the keys of positions `first` [B·K] and on, of one group, are in each beam's past [B·K, stride]."""
        p, each = self.cache_positions, torch.arange(self.ring.stride, device=first.device)
        if p.history is None:
            return each.expand(len(first), -1)
        position = (first[:, None] + each).clamp(max=p.length - 1)
        return each * p.beams + p.history.flatten(0, 1).gather(1, position).clamp(max=p.beams - 1)

    def _read_many(
        self, k: Tensor, v: Tensor, context: AttentionContext, shorten: Shorten | None, ordered: bool
    ) -> Keys:
        """Several tokens of every row: they see what was kept, and each other, before they take any slot."""
        p, ring, stride = self.cache_positions, self.ring, self.ring.stride
        p.mark_own(k.shape[2])
        at, steps, begins = p.position, k.shape[2], p.filled == 0
        last = at + steps - 1 if p.ends is None else p.ends - 1  # [B·K] the last position of each row that counts
        first, new_k, new_v = at // stride, k, v
        if shorten is not None:
            count = -(-steps // stride) if begins else (steps + 2 * stride - 2) // stride  # of groups that they touch
            each = first[:, None] * stride + torch.arange(count * stride, device=at.device)
            index = (stride + each - at[:, None]).clamp(max=stride + steps - 1)
            index = torch.where(each < at[:, None], each % stride, index)  # [B·K, count·stride]
            group = self._group_slots(first * stride)
            both = ((self.open_keys, k), (self.open_values, v))
            new_k, new_v = (_taken(torch.cat([_taken(kept, group), new], 2), index) for kept, new in both)
            new_k, new_v = _shortened(new_k, new_v, shorten)
        read = new_k, new_v, context
        if not begins:
            read = self._beside_kept(new_k, new_v, first, context)
        elif shorten is not None:
            position = ring.position(torch.arange(new_k.shape[2], device=at.device))[None]
            keys = Layout(position, context.keys.end + stride - 1, stride=stride)
            read = new_k, new_v, AttentionContext(context.queries, keys)
        for kept, new in ((self.keys, new_k), (self.values, new_v)):
            self._store(kept, new, ring.entries(last // stride), first)
        for kept, new in ((self.open_keys, k), (self.open_values, v)):
            if shorten is not None:
                self._store(kept, new, SlotRing(0, stride).entries(last), at)
        return _in_order(*read) if ordered and not begins else read

    def _beside_kept(self, k: Tensor, v: Tensor, first: Tensor, context: AttentionContext) -> Keys:
        """New entries from number `first` [B·K] on, behind those before them that are kept."""
        p, ring = self.cache_positions, self.ring
        held = ring.entries((p.position - 1) // ring.stride)  # [B·K, slots]
        index = torch.arange(ring.slots, device=k.device) * p.beams
        if p.history is not None:
            wrote = p.history.flatten(0, 1).gather(1, ring.position(held).clamp(max=p.length - 1))
            index = index + wrote.clamp(max=p.beams - 1)
        index = index.expand(len(first), -1)
        new = first[:, None] + torch.arange(k.shape[2], device=k.device)
        real = torch.cat([(held >= 0) & (held < first[:, None]), torch.ones_like(new, dtype=torch.bool)], 1)
        position = torch.cat([ring.position(held), ring.position(new)], 1)
        keys = Layout(position, context.queries.end + ring.stride - 1, real)
        k, v = torch.cat([_taken(self.keys, index), k], 2), torch.cat([_taken(self.values, index), v], 2)
        return k, v, AttentionContext(replace(context.queries, past=None), keys)

    def _store(self, kept: Tensor, new: Tensor, held: Tensor, first: Tensor) -> None:
        """Into each slot the entry that it now holds [B·K, slots], if that is new: `new` begins with number `first`."""
        beams = self.cache_positions.beams
        number = held - first[:, None]
        own = kept.unflatten(2, (-1, beams)).permute(0, 3, 1, 2, 4)  # [B, K, H, slots, d]
        taken = _taken(new, number.clamp(0, new.shape[2] - 1)).unflatten(0, (-1, beams))
        own.copy_(torch.where((number >= 0).view(-1, beams, 1, held.shape[1], 1), taken, own))

    # --- moving rows -------------------------------------------------------------------------------------------

    @property
    def _count(self) -> int:
        """Slots in which something was written, beams aside."""
        return min(-(-self.cache_positions.filled // self.ring.stride), self.ring.slots)

    def expand_beams(self, beams: int) -> None:
        def widened(x: Tensor) -> Tensor:
            wide = x.new_zeros(*x.shape[:2], x.shape[2] * beams, x.shape[3])
            wide[:, :, ::beams] = x
            return wide

        self.keys, self.values = widened(self.keys), widened(self.values)
        self.open_keys, self.open_values = widened(self.open_keys), widened(self.open_values)

    def reorder(self, index: Tensor) -> None:
        p = self.cache_positions
        self.keys, self.values = reorder_rows(index, p, self._count * p.beams, self.keys, self.values)
        if self.ring.stride > 1:
            whole = self.open_keys.shape[2]
            self.open_keys, self.open_values = reorder_rows(index, p, whole, self.open_keys, self.open_values)

    def write(self, rows: Tensor, other: KVCache) -> None:
        """Replace some sentences by those of another cache: while it has fewer slots, it has filled no ring."""
        assert isinstance(other, BoundedKVCache)
        if count := other._count * other.cache_positions.beams:
            self.keys[rows, :, :count] = other.keys[:, :, :count]
            self.values[rows, :, :count] = other.values[:, :, :count]
        if self.ring.stride > 1:
            self.open_keys[rows], self.open_values[rows] = other.open_keys, other.open_values


def _put(kept: Tensor, new: Tensor, slots: Tensor) -> None:
    """Write [B·K, H, 1, d] into a slot of each row and head [B·K·H]."""
    kept.view(-1, kept.shape[-1]).index_copy_(0, slots, new.flatten(0, 2))


def _shortened(k: Tensor, v: Tensor, shorten: Shorten) -> tuple[Tensor, Tensor]:
    """Keys and values of whole groups [N, H, G·stride, d], compressed [N, H, G, d]."""
    layout = Layout.of(k.shape[2], device=k.device)
    return shorten(k, v, AttentionContext(layout, layout))[:2]


def _taken(x: Tensor, index: Tensor) -> Tensor:
    """What is at the indices [B·K, n] in [B, H, N, d], for each of the K rows that share it: [B·K, H, n, d]."""
    rows, heads, _, size = x.shape
    flat = index.reshape(rows, 1, -1, 1).expand(-1, heads, -1, size)
    return x.gather(2, flat).unflatten(2, (-1, index.shape[1])).transpose(1, 2).flatten(0, 1)


def _in_order(k: Tensor, v: Tensor, context: AttentionContext) -> Keys:
    """Each beam's own keys by their positions, what it does not see first."""

    def sort() -> tuple[Tensor, AttentionContext]:
        keys, queries = context.keys, context.queries
        assert keys.real is not None
        position = keys.position.masked_fill(~keys.real, -1)
        rows, count = len(position), position.shape[1]
        if queries.past is not None:
            beams = len(queries.past) // rows
            rows, count = rows * beams, count // beams
            position = position.repeat_interleave(beams, 0).masked_fill(~queries.past[:, 0], -1)
        position, index = position.sort(dim=-1, stable=True)
        position, index = position[:, -count:], index[:, -count:]
        layout = Layout(position.clamp(min=0), keys.end, position >= 0)
        return index, AttentionContext(replace(queries, past=None), layout, reach=context.reach)

    index, ordered = context.once("sorted", sort)
    return _taken(k, index), _taken(v, index), ordered
