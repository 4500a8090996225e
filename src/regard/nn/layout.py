"""The layout of an attention: for every query and key its position, its document, and whether it is padding.

Cached decoding, cross-attention and packed documents are the same attention with other layouts.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from regard.errors import RegardError

T = TypeVar("T")


@dataclass(frozen=True)
class Tree:
    """Dependency trees. i is an ancestor of j, or j itself, when enter[i] ≤ enter[j] < leave[i]."""

    depth: Tensor  # [B, N] edges up to the root
    enter: Tensor  # [B, N] when a depth-first walk reaches the node
    leave: Tensor  # [B, N] when it has visited all nodes below


@dataclass(frozen=True)
class SequenceSpans:
    """Sequences end to end in one row: number s is at start[s] … start[s] + length[s]. All tensors have 32 bits."""

    start: Tensor  # [S or more]
    length: Tensor  # [S or more]
    count: Tensor  # [1] S itself
    longest: int  # no sequence is longer; known without asking the device


@dataclass(frozen=True)
class Layout:
    """The positions of one side of an attention. A row of length 1 in `position` serves the whole batch."""

    _position: Tensor | None  # `position`; None: 0, 1, 2 …, made when they are asked for: most attentions never do
    end: int  # every position is below this; known without asking the device
    real: Tensor | None = None  # [B, N] False at padding; None: everything is real
    document: Tensor | None = None  # [B, N] which sequence of a packed row; None: one a row
    right_padded: bool = False  # positions are 0, 1, 2 … and padding stands only at the end
    tree: Tree | None = None  # for structural positions
    start: int = 0  # no position is below this; known without asking the device
    past: Tensor | None = None  # [B, N, K] which keys are a query's own past, where beams share storage; None: all
    stride: int = 1  # positions that each stands for, side by side from 0: more than 1 where keys are compressed
    spans: SequenceSpans | None = None  # of a packed row's documents, where each is one span
    device: torch.device | None = None  # of positions that are still to be made; None: torch's default

    @property
    def position(self) -> Tensor:
        """Absolute positions [B or 1, N]."""
        if self._position is None:
            object.__setattr__(self, "_position", torch.arange(self.end, device=self.device)[None])
        assert self._position is not None
        return self._position

    @property
    def rows(self) -> int:
        parts = (self._position, self.real, self.document, self.tree.depth if self.tree else None)
        return max([1, *(len(part) for part in parts if part is not None)])

    @property
    def length(self) -> int:
        return self.end if self._position is None else self._position.shape[1]

    def lengths(self) -> Tensor:
        """The number of real positions of each row [B or 1]."""
        if self.real is None:
            return torch.tensor([self.length], device=self.position.device)
        return self.real.sum(-1)

    @staticmethod
    def of(
        length: int, real: Tensor | None = None, device: torch.device | None = None, tree: Tree | None = None
    ) -> "Layout":
        """Sequences that start at 0 and are padded on the right, if at all."""
        return Layout(None, length, real, right_padded=True, tree=tree, device=device)

    @staticmethod
    def masked(real: Tensor, rows: int, length: int) -> "Layout":
        """Positions from 0 and a caller's padding mask [B, N]; the padding may stand anywhere."""
        _check_mask(real, (rows, length), f"[{rows}, {length}]")
        if real.device.type == "cpu" and not torch.compiler.is_compiling():  # a GPU would have to be waited for
            if real.all():
                return Layout.of(length)
            if (real[:, 1:] <= real[:, :-1]).all():
                return Layout.of(length, real)
        return Layout(None, length, real, device=real.device)


def _check_mask(mask: Tensor, shape: tuple[int, ...], wanted: str) -> None:
    """Raise RegardError unless the mask is of bools and broadcasts to the shape."""
    if mask.dtype != torch.bool:
        raise RegardError(f"mask must be of bools, True where a key may be seen, not {mask.dtype}")
    fits = mask.dim() == len(shape) and all(m in (1, n) for m, n in zip(mask.shape, shape, strict=True))
    if not fits or (mask.dim() == 2 and mask.shape != shape):
        raise RegardError(f"mask is {list(mask.shape)}, and this call takes {wanted}")


Grid = tuple[Tensor, Tensor, Tensor, Tensor]  # b, h, i, j: index tensors that broadcast together


@dataclass(frozen=True)
class AttentionContext:
    """The layouts of the queries and of the keys of one attention. All layers share it, so a mask is built once."""

    queries: Layout
    keys: Layout
    caller_mask: Tensor | None = None  # [B or 1, H or 1, Q, K] True where a key may be seen, beside what patterns say
    reach: int | None = None  # no visible key is farther from its query; known without asking the device
    _memo: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def masked(mask: Tensor, shape: tuple[int, int, int, int]) -> "AttentionContext":
        """Positions from 0 and a caller's mask that broadcasts to this shape [B, H, Q, K]."""
        rows, heads, queries, keys = shape
        _check_mask(mask, shape, f"[{rows}, {keys}] or [{rows} or 1, {heads} or 1, {queries}, {keys}]")
        queries_layout = Layout.of(queries, device=mask.device)
        keys_layout = queries_layout if keys == queries else Layout.of(keys, device=mask.device)
        return AttentionContext(queries_layout, keys_layout, mask.expand(-1, -1, queries, keys))

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result of `make`, computed at the first request for this key."""
        if key not in self._memo:
            self._memo[key] = make()
        return self._memo[key]

    @property
    def farthest(self) -> int:
        """No key that is visible lies farther from its query."""
        last = max(self.queries.end, self.keys.end) - 1
        return last if self.reach is None else min(self.reach, last)

    @property
    def rows(self) -> int:
        return max(self.queries.rows, self.keys.rows, 1 if self.caller_mask is None else len(self.caller_mask))

    def fold_beams(self, rows: int) -> "AttentionContext":
        """As many rows of queries as of keys: queries of a sentence's beams side by side, [B·K, T] as [B, K·T]."""
        q = self.queries
        if len(q.position) <= rows:
            return self
        assert self.caller_mask is None  # beams are a search's, which has layouts

        def fold() -> AttentionContext:
            past = None if q.past is None else q.past.reshape(rows, -1, q.past.shape[-1])
            queries = replace(q, _position=q.position.reshape(rows, -1), past=past)
            return AttentionContext(queries, self.keys, reach=self.reach)

        return self.once(("folded", rows), fold)

    def grid(self, heads: int = 1) -> Grid:
        """Every row, head, query and key: [B, 1, 1, 1], [H, 1, 1], [Q, 1], [1, K]."""
        device = self.queries.position.device
        b = torch.arange(self.rows, device=device)[:, None, None, None]
        h = torch.arange(heads, device=device)[:, None, None]
        i = torch.arange(self.queries.length, device=device)[:, None]
        j = torch.arange(self.keys.length, device=device)[None, :]
        return b, h, i, j


def at(rows: Tensor, b: Tensor, n: Tensor) -> Tensor:
    """rows[b, n], where one row may serve the whole batch."""
    return rows[0][n] if rows.shape[0] == 1 else rows[b, n]


def distance(context: AttentionContext, b: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """position(j) − position(i) of key j and query i."""
    return at(context.keys.position, b, j) - at(context.queries.position, b, i)


def fold_beams(x: Tensor, rows: int) -> Tensor:
    """Queries of beams side by side: [B·K, H, T, d] -> [B, H, K·T, d]."""
    return x if len(x) == rows else x.unflatten(0, (rows, -1)).transpose(1, 2).flatten(2, 3)


def unfold_beams(x: Tensor, rows: int) -> Tensor:
    """[B, H, K·T, d] -> [B·K, H, T, d]"""
    return x if len(x) == rows else x.unflatten(2, (rows // len(x), -1)).transpose(1, 2).flatten(0, 1)
