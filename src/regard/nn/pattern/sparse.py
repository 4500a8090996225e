"""Sparse self-attention: a window, blocks, global positions, random blocks, and BigBird, which is all of these.

Which blocks may be visible is found in time linear in the length; `allow` says exactly what is.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from regard.config import choice
from regard.nn.layout import AttentionContext, at, distance
from regard.nn.pattern.masks import Blocks, Pattern, Retention, require_at_least


def _tiles(context: AttentionContext, size: int) -> int:
    """How many blocks of `size` the positions of a self-attention make; 0 where it is none over whole sequences."""
    q, k = context.queries, context.keys
    return -(-q.length // size) if q.right_padded and k.right_padded and q.length == k.length else 0


@dataclass(frozen=True)
class Band(Pattern):
    """What lies from `back` blocks before to `ahead` blocks after one's own; blocks of 1 are positions."""

    block: int
    back: int
    ahead: int

    def allow(self, context: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if self.block == 1:
            away = distance(context, b, i, j)
        else:
            away = at(context.keys.position, b, j) // self.block - at(context.queries.position, b, i) // self.block
        return (away >= -self.back) & (away <= self.ahead)

    def blocks(self, context: AttentionContext, size: int) -> Blocks | None:
        count = _tiles(context, size)
        if not count or (size % self.block and self.block % size):
            return None
        slack = max(self.block - size, 0)  # a small tile may stand anywhere in its block
        back, ahead = (min(-(-(n * self.block + slack) // size), count - 1) for n in (self.back, self.ahead))
        own = torch.arange(count, device=context.keys.position.device)[:, None]
        keys = own + torch.arange(-back, ahead + 1, device=own.device)  # [query tiles, M]
        per, of = max(size // self.block, 1), max(self.block // size, 1)  # blocks in a tile, or tiles in a block
        least = keys * per // of - (own * per // of + per - 1)  # how far the nearest blocks of two tiles lie apart
        most = least + 2 * (per - 1)
        seen = (most >= -self.back) & (least <= self.ahead) & (keys >= 0) & (keys < count)
        whole = (least >= -self.back) & (most <= self.ahead)
        return Blocks(keys.masked_fill(~seen, -1)[None, None], whole=whole[None, None])


@choice("window", "M3", "|position(j) − position(i)| ≤ r", "Vaswani 2017, 4")
class SlidingWindow(Pattern):
    """A position sees those at most r away."""

    roles: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    r: int

    def __post_init__(self) -> None:
        require_at_least(f"window({self.r})", "r", self.r, 1)

    @property
    def retention(self) -> Retention:
        return Retention(0, self.r + 1)

    def bind(self, q: Tensor, context: AttentionContext, layer: int, past: bool = False) -> Pattern:
        return Band(1, self.r, 0 if past else self.r)


@choice("blocks", "M9", "⌊position(j) / size⌋ = ⌊position(i) / size⌋", "Liu 2018, 4.2.3")
class LocalBlocks(Pattern):
    """A position sees those of its own block: blocks of equal size, side by side."""

    roles: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    size: int

    def __post_init__(self) -> None:
        require_at_least(f"blocks({self.size})", "size", self.size, 1)

    @property
    def retention(self) -> Retention:
        return Retention(0, self.size)

    def bind(self, q: Tensor, context: AttentionContext, layer: int, past: bool = False) -> Pattern:
        return Band(self.size, 0, 0)


@choice("global", "M5", "position(i) < g or position(j) < g", "Zaheer 2020, 2")
class Global(Pattern):
    """The first g positions see all, and are seen by all."""

    roles: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    g: int

    def __post_init__(self) -> None:
        require_at_least(f"global({self.g})", "g", self.g, 1)

    @property
    def retention(self) -> Retention:
        return Retention(self.g, 0)

    def allow(self, context: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (at(context.queries.position, b, i) < self.g) | (at(context.keys.position, b, j) < self.g)

    def blocks(self, context: AttentionContext, size: int) -> Blocks | None:
        count = _tiles(context, size)
        none = torch.empty(1, 1, count, 0, dtype=torch.long, device=context.keys.position.device)
        return Blocks(none, min(self.g, context.keys.length), none.bool()) if count else None


@choice(
    "random",
    "M5",
    "⌊position(j) / block⌋ ∈ count blocks drawn for (seed, layer, head, ⌊position(i) / block⌋)",
    "Zaheer 2020, 2",
)
class Random(Pattern):
    """Every block of positions sees some blocks drawn at random; under a causal pattern, earlier ones."""

    roles: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    by_head = True

    count: int
    block: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("count", "block"):
            require_at_least(f"random({self.count}, block={self.block})", name, vars(self)[name], 1)

    def check(self, longest: int) -> None:
        _enough(self.count, self.block, longest)

    def bind(self, q: Tensor, context: AttentionContext, layer: int, past: bool = False) -> Pattern:
        return _sampled(BlockSampler(self.count, self.block, self.seed, layer, q.shape[1], past), context)


@choice("bigbird", "M5", "window | global | random, all in blocks", "Zaheer 2020, 2")
class BigBird(Pattern):
    """In blocks: a window around one's own, the first ones, and some drawn at random from the rest."""

    roles: ClassVar[tuple[str, ...]] = ("encoder", "decoder")
    by_head = True

    block: int = 64
    window: int = 3
    first: int = field(default=2, metadata={"name": "global"})
    random: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("block", 1), ("window", 1), ("first", 0), ("random", 0)):
            require_at_least("bigbird", "global" if name == "first" else name, vars(self)[name], least)
        if self.window % 2 == 0:
            raise ValueError(f"bigbird's window is centred on its own block: {self.window} must be odd")

    def check(self, longest: int) -> None:
        _enough(self.random, self.block, longest)

    @property
    def retention(self) -> Retention | None:
        """Blocks that are drawn may lie anywhere in the past."""
        return None if self.random else Retention(self.first * self.block, (self.window // 2 + 1) * self.block)

    def bind(self, q: Tensor, context: AttentionContext, layer: int, past: bool = False) -> Pattern:
        side = self.window // 2
        pattern: Pattern = Band(self.block, side, 0 if past else side)
        if self.first:
            pattern = pattern | Global(self.first * self.block)
        if self.random:
            sampler = BlockSampler(self.random, self.block, self.seed, layer, q.shape[1], past, self.first, side)
            pattern = pattern | _sampled(sampler, context)
        return pattern


def _enough(count: int, block: int, longest: int) -> None:
    if count > (exist := -(-longest // block)):
        raise ValueError(
            f"{count} random blocks cannot be drawn: the longest input of {longest} tokens has {exist} "
            f"of {block}; draw fewer, or smaller ones"
        )


# --- drawing -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class SampledBlocks(Pattern):
    """Blocks that were sampled for every head and block of queries."""

    by_head = True

    table: Tensor  # [B or 1, H, query blocks, count] blocks of keys; -1: none
    block: int
    of_rows: "tuple[SampledBlocks, ...]" = ()  # of each row alone, where rows differ

    def allow(self, context: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        query = at(context.queries.position, b, i) // self.block
        key = at(context.keys.position, b, j) // self.block
        row = b if len(self.table) > 1 else torch.zeros_like(b)
        seen = self.table[row, h, query, 0] == key
        for n in range(1, self.table.shape[-1]):
            seen = seen | (self.table[row, h, query, n] == key)
        return seen

    def blocks(self, context: AttentionContext, size: int) -> Blocks | None:
        count = _tiles(context, size)
        if not count or self.block % size:
            return None
        of = self.block // size  # tiles in a block
        keys = self.table[..., None] * of + torch.arange(of, device=self.table.device)
        keys = keys.masked_fill((keys < 0) | (keys >= count), -1).flatten(-2)  # [B or 1, H, query blocks, M]
        keys = keys.repeat_interleave(of, 2)[:, :, :count]
        return Blocks(keys, whole=keys >= 0)


@dataclass(frozen=True)
class BlockSampler:
    """A sampler of an attention's random blocks: the same on every device and in every batch."""

    count: int
    block: int
    seed: int
    layer: int
    heads: int
    past: bool  # only from blocks before one's own
    first: int = 0  # blocks that are seen anyway, at the start
    side: int = -1  # and on either side of one's own; -1: one's own may be drawn too

    def sample(self, blocks: int, lengths: Tensor) -> Tensor:
        """For rows of `lengths` positions [B], the keys of query blocks 0, 1, 2 … [B, H, blocks, count]; -1: no more.

        Candidates are first … low − 1 and high … stop − 1.
        """
        own = torch.arange(blocks, device=lengths.device)[None, None]  # [1, 1, blocks]
        stop = -(-lengths[:, None, None] // self.block)  # [B, 1, 1]
        high = own if self.past else own + self.side + 1
        low = own - self.side if self.side >= 0 else high
        low, high = low.clamp(min=self.first), high.clamp(min=self.first)
        if self.past:
            stop = high = low
        low, high = torch.minimum(low, stop), torch.minimum(high, stop)
        size = (low - self.first + stop - high).clamp(min=0)
        number = self._without_replacement(own, size)  # [B, H, blocks, count]
        key = number + self.first
        key = torch.where(key >= low[..., None], key + (high - low)[..., None], key)
        return key.masked_fill(number < 0, -1)

    def _without_replacement(self, own: Tensor, size: Tensor) -> Tensor:
        """`count` of the numbers below `size` [B, 1, blocks], all different (Floyd's algorithm, Bentley 1987)."""
        head = torch.arange(self.heads, device=own.device)[:, None]
        take = size.clamp(max=self.count)
        drawn: list[Tensor] = []
        for n in range(self.count):
            last = size - take + n
            number = _hash(self.seed, self.layer, head, own, n) % (last + 1).clamp(min=1)  # [B, H, blocks]
            for other in drawn:
                number = torch.where(number == other, last, number)
            drawn.append(torch.where(n < take, number, -1))
        return torch.stack(drawn, -1)


def _sampled(sampler: BlockSampler, context: AttentionContext) -> SampledBlocks:
    """The same object for the same sampler, so that what kernels derive from it can be kept."""
    blocks, device = -(-context.queries.end // sampler.block), context.keys.position.device
    if sampler.past or context.keys.real is None:  # all rows alike
        return _shared_sample(sampler, blocks, 0 if sampler.past else context.keys.length, device)

    def by_row() -> SampledBlocks:
        """A draw depends on how many blocks a row has, and few numbers of them occur: each is drawn once."""
        lengths = context.once("lengths", lambda: context.keys.lengths().tolist())
        whole = (-(-length // sampler.block) * sampler.block for length in lengths)
        rows = tuple(_shared_sample(sampler, blocks, length, device) for length in whole)
        if all(row is rows[0] for row in rows):
            return rows[0]
        return SampledBlocks(torch.cat([row.table for row in rows]), sampler.block, rows)

    return context.once(("sampled blocks", sampler), by_row)


@lru_cache(maxsize=1024)
@torch.inference_mode(False)
def _shared_sample(sampler: BlockSampler, blocks: int, length: int, device: torch.device) -> SampledBlocks:
    return SampledBlocks(sampler.sample(blocks, torch.tensor([length], device=device)), sampler.block)


def _hash(*parts: int | Tensor) -> Tensor:
    """One number below 2³² for many, by whole numbers alone: every device gives the same."""
    value: int | Tensor = 0
    for part in parts:
        value = (value + part + 0x9E3779B9) & 0xFFFFFFFF
        for _ in range(2):
            value = ((value ^ (value >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
        value = value ^ (value >> 16)
    assert isinstance(value, Tensor)
    return value
