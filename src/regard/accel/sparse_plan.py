"""Which tiles of queries and keys meet under a sparse pattern, as small integers that a kernel can follow.

Where a tile is visible in part, the plan has a bit for every query and key of it, so that any pattern can be served.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.nn.layout import AttentionContext
from regard.nn.pattern import Blocks, Causal, Pattern

KEYS = 64  # in a tile: the bits of two words


@dataclass(frozen=True)
class SparsePlan:
    """Which tiles meet. G counts rows and heads where these differ; a tile of keys is named by its number."""

    rows: int  # queries in a tile
    edge: int  # so many tiles of keys, the first, meet all queries
    of_row: int  # G = row · of_row + head · of_head
    of_head: int
    ids: Tensor  # [G, NQ, W] the tiles of keys that a tile of queries meets, the edge's first
    refs: Tensor  # [G, NQ, W] which of `bits` say what is visible there; -1: all is
    counts: Tensor  # [G, NQ] how many they are
    starts: Tensor  # [G·NK + 1] where in `query_ids` those begin that meet a tile of keys beyond the edge
    query_ids: Tensor  # [pairs] tiles of queries
    query_refs: Tensor  # [pairs]
    top: Tensor  # [G, tops, NK] the refs of the first tiles of queries, which meet all keys
    bits: Tensor  # [partly visible tiles, rows, 2] a bit for each key
    every: Tensor  # 0, 1, 2 …

    @property
    def query_tiles(self) -> int:
        """NQ, tiles of queries."""
        return self.ids.shape[1]

    @property
    def width(self) -> int:
        return self.ids.shape[2]

    @property
    def tops(self) -> int:
        return self.top.shape[1]

    @property
    def key_tiles(self) -> int:
        """NK, tiles of keys."""
        return self.top.shape[2]


def make_plan(parts: tuple[Pattern, ...], context: AttentionContext) -> SparsePlan | None:
    """The plan of what all these patterns allow, in time linear in the length; None where any tile may be visible."""
    small, large = (_shortest(parts, context, rows) for rows in (64, 128))
    if small is None:
        return None
    part, listed = small
    rows = 64
    if large is not None and 2 * large[1].keys.shape[-1] <= 1.25 * listed.keys.shape[-1]:  # fewer and larger is faster
        (part, listed), rows = large, 128
    others = [other for other in parts if other != part and other.mask_kind(context) != "full"]
    if any(other.by_head for other in others):
        return None
    if context.rows > 1:  # documents differ from row to row
        listed = replace(listed, keys=listed.keys.expand(context.rows, -1, -1, -1))
    known = listed.whole is not None and all(other == Causal() for other in others)
    return _Planner(parts, context, rows, listed, known).plan()


def merged_plan(plans: Sequence[SparsePlan | None]) -> SparsePlan | None:
    """The plan of a batch, of the plans of its rows, whose patterns differ in blocks that were drawn and no more."""
    known = [plan for plan in plans if plan is not None]
    if len(known) < len(plans):
        return None
    first, width = known[0], max(plan.width for plan in known)
    pairs = list(accumulate((len(plan.query_ids) for plan in known), initial=0))
    tiles = list(accumulate((len(plan.bits) for plan in known), initial=0))

    def refs(name: Callable[[SparsePlan], Tensor]) -> list[Tensor]:
        """What refers to `bits`, of which those of earlier rows stand before a row's own; 0 hides all anywhere."""
        each = (name(plan) for plan in known)
        return [torch.where(x > 0, x + offset, x) for x, offset in zip(each, tiles, strict=False)]

    def padded(x: Tensor, fill: int) -> Tensor:
        return F.pad(x, (0, width - x.shape[-1]), value=fill)

    starts = [plan.starts[:-1] + offset for plan, offset in zip(known, pairs, strict=False)]
    return replace(
        first,
        of_row=len(first.ids),
        ids=torch.cat([padded(plan.ids, plan.key_tiles) for plan in known]),
        refs=torch.cat([padded(x, 0) for x in refs(lambda plan: plan.refs)]),
        counts=torch.cat([plan.counts for plan in known]),
        starts=torch.cat([*starts, first.starts.new_tensor(pairs[-1:])]),
        query_ids=torch.cat([plan.query_ids for plan in known]),
        query_refs=torch.cat(refs(lambda plan: plan.query_refs)),
        top=torch.cat(refs(lambda plan: plan.top)),
        bits=torch.cat([plan.bits for plan in known]),
    )


def _shortest(parts: tuple[Pattern, ...], context: AttentionContext, rows: int) -> tuple[Pattern, Blocks] | None:
    listings = [(part, listed) for part in parts if (listed := part.blocks(context, rows)) is not None]
    return min(listings, key=lambda each: each[1].keys.shape[-1], default=None)


class _Planner:
    """Tiles of queries are called t, those of keys u; bits 0 hide all."""

    def __init__(
        self, parts: tuple[Pattern, ...], context: AttentionContext, rows: int, listed: Blocks, known: bool
    ) -> None:
        self.parts, self.context, self.rows, self.listed, self.known = parts, context, rows, listed, known
        self.n, self.edge_length = context.keys.length, min(listed.edge, context.keys.length)
        self.query_tiles, self.key_tiles = -(-self.n // rows), -(-self.n // KEYS)
        self.causal = Causal() in parts
        self.edge = -(-self.edge_length // KEYS)
        self.tops = 0 if self.causal else -(-self.edge_length // rows)  # nobody sees much of what lies before the first
        self.device = listed.keys.device
        self.bits = [torch.zeros(1, rows, KEYS // 32, dtype=torch.int32, device=self.device)]

    def plan(self) -> SparsePlan:
        t = torch.arange(self.query_tiles, device=self.device)[:, None]
        u, there, whole = self._lists(t)
        refs = self._refs(t, u, there, whole)
        top_u = torch.arange(self.key_tiles, device=self.device).expand(len(u), self.tops, -1)
        top = self._refs(t[: self.tops], top_u, top_u >= 0, (t[: self.tops] + 1) * self.rows <= self.edge_length)
        u, refs, counts = self._sorted(u, refs)
        starts, query_ids, query_refs = self._by_keys((u, refs), (top_u, top))
        rows, heads = self.listed.keys.shape[:2]
        every = torch.arange(max(self.query_tiles, self.key_tiles), device=self.device)
        numbers = (u, refs, counts, starts, query_ids, query_refs, top, torch.cat(self.bits), every)
        return SparsePlan(
            self.rows, self.edge, heads if rows > 1 else 0, int(heads > 1), *(x.int().contiguous() for x in numbers)
        )

    def _lists(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The edge's tiles, then the listed ones: which they are, whether they are there, and wholly visible."""
        per = self.rows // KEYS
        listed = self.listed.keys.flatten(0, 1)  # [G, NQ, M]
        u = (listed[..., None] * per + torch.arange(per, device=self.device)).flatten(-2)
        whole = torch.zeros_like(u, dtype=torch.bool)
        if self.listed.whole is not None:
            whole = self.listed.whole.expand_as(self.listed.keys).flatten(0, 1).repeat_interleave(per, -1)
        first = torch.arange(self.edge, device=self.device).expand(len(u), self.query_tiles, -1)
        there = torch.cat([first >= 0, (u >= self.edge) & (u < self.key_tiles) & (t >= self.tops)], -1)
        return torch.cat([first, u], -1), there, torch.cat([(first + 1) * KEYS <= self.edge_length, whole], -1)

    def _refs(self, t: Tensor, u: Tensor, there: Tensor, whole: Tensor) -> Tensor:
        """-1 where all is visible, 0 where nothing is, else the bits that say what."""
        whole = whole & there & ((u + 1) * KEYS <= self.n) if self.known else torch.zeros_like(there)
        if self.causal:
            whole = whole & ((u + 1) * KEYS <= t * self.rows + 1)  # its last key is no later than the first query
            there = there & (u * KEYS < (t + 1) * self.rows)
        refs = -whole.long()
        g, row, column = (there & ~whole).nonzero(as_tuple=True)
        bits = self._look(g, t[row, 0], u[g, row, column])
        all_, none = (bits == -1).flatten(1).all(-1), (bits == 0).flatten(1).all(-1)
        part = ~(all_ | none)
        number = part.cumsum(0) - 1 + sum(map(len, self.bits))
        refs[g, row, column] = torch.where(part, number, -all_.long())
        self.bits.append(bits[part])
        return refs

    def _look(self, g: Tensor, t: Tensor, u: Tensor) -> Tensor:
        """The bits of tiles [P, rows, 2], by asking the patterns; some at a time: each has thousands of pairs."""
        heads = self.listed.keys.shape[1]
        query, key = torch.arange(self.rows, device=self.device)[:, None], torch.arange(KEYS, device=self.device)
        chunks = [self.bits[0][:0]]
        for some in torch.arange(len(g), device=self.device)[:, None, None].split(1024):
            i, j = t[some] * self.rows + query, u[some] * KEYS + key
            seen = (i < self.n) & (j < self.n)  # [P, rows, KEYS]
            grid = g[some] // heads, g[some] % heads, i.clamp(max=self.n - 1), j.clamp(max=self.n - 1)
            for part in self.parts:
                seen = seen & part.allow(self.context, *grid)
            words = seen.unflatten(-1, (-1, 32)).long() << torch.arange(32, device=self.device)
            chunks.append(words.sum(-1).int())
        return torch.cat(chunks)

    def _sorted(self, u: Tensor, refs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """In order, without the listed tiles of which nothing is visible; and how many are left in each list."""
        column = torch.arange(u.shape[-1], device=self.device)
        u = u.masked_fill((refs == 0) & (column >= self.edge), self.key_tiles)  # behind all others
        u, order = u.sort(dim=-1, stable=True)  # the edge's tiles are the first anyway
        counts = (u < self.key_tiles).sum(-1)
        width = max(int(counts.max()), 1)
        return u[..., :width], refs.gather(-1, order)[..., :width], counts

    def _by_keys(self, *lists: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """All pairs by tiles of keys, beyond the edge: where each begins, the tiles of queries, the refs."""
        pairs = []
        for u, refs in lists:
            g, t, column = ((u >= self.edge) & (u < self.key_tiles) & (refs != 0)).nonzero(as_tuple=True)
            pairs.append(torch.stack([g * self.key_tiles + u[g, t, column], t, refs[g, t, column]]))
        tile, query_ids, query_refs = torch.cat(pairs, 1)  # [pairs] each
        tile, order = tile.sort(stable=True)
        starts = torch.searchsorted(tile, torch.arange(len(u) * self.key_tiles + 1, device=self.device))
        return starts, query_ids[order], query_refs[order]
