"""The attention mask as an object: which queries may attend to which keys.

A `Pattern` is bound to the queries and the layouts of an attention, then answers for any (batch, head, query, key):
`allow` is the predicate, `mask` its dense form. Patterns combine with & and |. Causal, padding and packed documents are
patterns like any other; sparse ones are in `sparse.py` and `local.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from regard.config import Choice, choice, choices
from regard.nn.layout import AttentionContext, at, distance
from regard.nn.sizes import Sizes

MaskKind = Literal["full", "causal", "mask"]  # for fast backends: nothing is masked, only the future, or something else


@dataclass(frozen=True)
class Blocks:
    """Blocks of positions that may be visible: a superset that `allow` refines."""

    keys: Tensor  # [B or 1, H or 1, query blocks, M] key blocks that a query block may see; -1: none
    edge: int = 0  # the first so many positions see all, and are seen by all, beside `keys`
    whole: Tensor | None = None  # [as keys] True where all of a block is visible, as all of the edge is; None: unknown


@dataclass(frozen=True)
class Retention:
    """What later queries may see of their past: its first positions, and the last ones, a query's own among them."""

    first: int
    last: int


def require_at_least(pattern: str, name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{pattern} is impossible: {name} must be a whole number of at least {least}, not {value}")


class Pattern(Choice, slot="pattern"):
    roles: ClassVar[tuple[str, ...]] = ("encoder", "decoder", "cross")  # of the attentions that it may mask
    binds: bool  # whether `bind` ever fixes anything …
    sparse: bool  # … `blocks` ever lists any …
    weighs: bool  # … and `gain` ever gives factors: attention asks all three at every call

    def __init_subclass__(cls, **options: str) -> None:
        super().__init_subclass__(**options)
        cls.binds = cls.bind is not Pattern.bind
        cls.sparse = cls.blocks is not Pattern.blocks
        cls.weighs = cls.gain is not Pattern.gain

    @staticmethod
    def from_text(text: str) -> "Pattern":
        """The pattern that an expression such as `window(64) | global(2)` describes."""
        from regard.nn.pattern.expression import parse_pattern  # which knows patterns

        return parse_pattern(text, choices(Pattern))

    @property
    def by_head(self) -> bool:
        """Whether heads differ in what they may see."""
        return False

    @property
    def rows(self) -> int:
        """More than 1 where a bound pattern itself tells the rows of a batch apart."""
        return 1

    @property
    def retention(self) -> Retention | None:
        """What a cache must keep for it beside a causal pattern; None: all of the past."""
        return None

    def check(self, longest: int) -> None:
        """Raise ValueError where sequences of at most `longest` positions cannot have this pattern."""

    def build(self, sizes: Sizes) -> "Pattern":
        """With the parameters that it learns, if any (`modules`)."""
        return self

    def modules(self) -> Iterator[nn.Module]:
        return iter(())

    def bind(self, q: Tensor, context: AttentionContext, layer: int, past: bool = False) -> "Pattern":
        """The pattern of these queries [B, H, Q, d] in this layer: what is predicted or drawn at random is fixed here.

        `past` says that it is combined with a causal pattern, so that only what lies before a query is worth drawing.
        """
        return self

    def allow(self, context: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """True where query i of row b may see key j under head h; the index tensors broadcast."""
        raise TypeError(f"{type(self).__name__} must be built, and bound to queries, before it gives a mask")

    def mask_kind(self, context: AttentionContext) -> MaskKind:
        return "mask"

    def blocks(self, context: AttentionContext, size: int) -> Blocks | None:
        """The visible blocks, found in time linear in the length; None where any block may be visible."""
        return None

    def gain(self, context: AttentionContext) -> Tensor | None:
        """Factors on the weights after normalising [B, H, Q, K]; None for most patterns."""
        return None

    def parts(self) -> "tuple[Pattern, ...]":
        """The patterns all of which must allow a key, through any depth of &."""
        return (self,)

    def __and__(self, other: "Pattern") -> "Pattern":
        return And(self, other)

    def __or__(self, other: "Pattern") -> "Pattern":
        return Or(self, other)

    def mask(self, context: AttentionContext, heads: int = 1) -> Tensor | None:
        """The dense mask, which broadcasts to [B, H, Q, K], built once a context; None when nothing is hidden."""

        def build() -> Tensor | None:
            if self.mask_kind(context) == "full":
                return None
            b, h, i, j = context.grid(heads if self.by_head else 1)
            if self.rows > len(b):
                b = torch.arange(self.rows, device=b.device)[:, None, None, None]
            seen = self.allow(context, b, h, i, j)
            return seen[(None,) * (4 - seen.dim())]

        return context.once(("mask", self, heads), build)


# --- masks that follow from the layout -----------------------------------------------------------------------------


@choice("full", "M0", "all (i, j)", "Vaswani 2017, 3.2")
class Full(Pattern):
    """Every query sees every key."""

    def allow(self, context: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.ones_like(i * j, dtype=torch.bool)

    def mask_kind(self, context: AttentionContext) -> MaskKind:
        return "full"


@choice("causal", "M2", "position(j) ≤ position(i)", "Vaswani 2017, 3.2.3")
class Causal(Pattern):
    """No query sees a later key; a decoder always has it."""

    roles: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    def allow(self, context: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return distance(context, b, i, j) <= 0

    def mask_kind(self, context: AttentionContext) -> MaskKind:
        q, k = context.queries, context.keys
        if q.start >= k.end - 1:  # the next word of rows that are equally long: all keys lie before it
            return "full"
        return "causal" if q.right_padded and k.right_padded and q.length == k.length else "mask"


@choice("", "M1", "j is real", "—")
class Padding(Pattern):
    """Padded keys are invisible; every attention has it."""

    def allow(self, context: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if context.keys.real is None:
            return torch.ones_like(i * j, dtype=torch.bool)
        return at(context.keys.real, b, j)

    def mask_kind(self, context: AttentionContext) -> MaskKind:
        return "full" if context.keys.real is None else "mask"


@choice("", "M8", "document(i) = document(j)", "—")
class Document(Pattern):
    """Sequences packed in one row never see each other, nor do beams; every attention has it."""

    def allow(self, context: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if context.queries.past is not None:
            return context.queries.past[b, i, j]
        if context.keys.document is None or context.queries.document is None:
            return torch.ones_like(i * j, dtype=torch.bool)
        return at(context.keys.document, b, j) == at(context.queries.document, b, i)

    def mask_kind(self, context: AttentionContext) -> MaskKind:
        return "full" if context.keys.document is None and context.queries.past is None else "mask"


@dataclass(frozen=True, eq=False)
class DenseMask(Pattern):
    """A mask that is there already, as a tensor [B or 1, H or 1, Q, K]."""

    visible: Tensor

    @property
    def by_head(self) -> bool:
        return self.visible.shape[1] > 1

    @property
    def rows(self) -> int:
        return len(self.visible)

    def allow(self, context: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        seen = self.visible
        return seen[b if len(seen) > 1 else 0, h if self.by_head else 0, i, j]


# --- combinations --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Combined(Pattern):
    left: Pattern
    right: Pattern

    def __post_init__(self) -> None:
        """What follows from the two alone is found here, once: attention asks for it at every call."""
        object.__setattr__(self, "binds", self.left.binds or self.right.binds)
        object.__setattr__(self, "weighs", self.left.weighs or self.right.weighs)

    @property
    def by_head(self) -> bool:
        return self.left.by_head or self.right.by_head

    @property
    def rows(self) -> int:
        return max(self.left.rows, self.right.rows)

    @property
    def roles(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(role for role in self.left.roles if role in self.right.roles)

    def check(self, longest: int) -> None:
        self.left.check(longest)
        self.right.check(longest)

    def build(self, sizes: Sizes) -> Pattern:
        return type(self)(self.left.build(sizes), self.right.build(sizes))

    def modules(self) -> Iterator[nn.Module]:
        yield from self.left.modules()
        yield from self.right.modules()

    def bind(self, q: Tensor, context: AttentionContext, layer: int, past: bool = False) -> Pattern:
        left, right = self.left.bind(q, context, layer, past), self.right.bind(q, context, layer, past)
        return self if left is self.left and right is self.right else type(self)(left, right)

    def gain(self, context: AttentionContext) -> Tensor | None:
        gains = [gain for part in (self.left, self.right) if (gain := part.gain(context)) is not None]
        return gains[0] * gains[1] if len(gains) == 2 else gains[0] if gains else None


class And(_Combined):
    _parts: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sparse", self.left.sparse or self.right.sparse)
        object.__setattr__(self, "_parts", (*self.left.parts(), *self.right.parts()))

    def parts(self) -> tuple[Pattern, ...]:
        return self._parts

    @property
    def retention(self) -> Retention | None:
        """What either keeps will do: the smaller of the two."""
        kept = [side.retention for side in (self.left, self.right) if side.retention is not None]
        return min(kept, key=lambda retention: retention.first + retention.last, default=None)

    def bind(self, q: Tensor, context: AttentionContext, layer: int, past: bool = False) -> Pattern:
        return super().bind(q, context, layer, past or Causal() in self.parts())

    def allow(self, context: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        hiding = [part for part in self._parts if part.mask_kind(context) != "full"] or self._parts[:1]
        seen = hiding[0].allow(context, b, h, i, j)
        for part in hiding[1:]:
            seen = seen & part.allow(context, b, h, i, j)
        return seen

    def mask_kind(self, context: AttentionContext) -> MaskKind:
        hiding = [(part, kind) for part in self.parts() if (kind := part.mask_kind(context)) != "full"]
        if len(hiding) < 2:
            return hiding[0][1] if hiding else "full"
        own = context.queries.real is context.keys.real  # padding on the right is the future of every real position …
        if own and any(kind == "causal" for _, kind in hiding):  # … of the same sequence
            hiding = [(part, kind) for part, kind in hiding if part != Padding()]
        return "causal" if all(kind == "causal" for _, kind in hiding) else "mask"

    def blocks(self, context: AttentionContext, size: int) -> Blocks | None:
        """What both allow lies within what either does: the shorter list will do, but the other may mask some of it."""
        listed = [blocks for side in (self.left, self.right) if (blocks := side.blocks(context, size)) is not None]
        return replace(min(listed, key=lambda blocks: blocks.keys.shape[-1]), whole=None) if listed else None


class Or(_Combined):
    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "sparse", self.left.sparse and self.right.sparse)

    def allow(self, context: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.left.allow(context, b, h, i, j) | self.right.allow(context, b, h, i, j)

    @property
    def retention(self) -> Retention | None:
        left, right = self.left.retention, self.right.retention
        if left is None or right is None:
            return None
        return Retention(max(left.first, right.first), max(left.last, right.last))

    def mask_kind(self, context: AttentionContext) -> MaskKind:
        return "full" if "full" in (self.left.mask_kind(context), self.right.mask_kind(context)) else "mask"

    def blocks(self, context: AttentionContext, size: int) -> Blocks | None:
        left, right = self.left.blocks(context, size), self.right.blocks(context, size)
        if left is None or right is None:
            return None
        known = left.whole is not None and right.whole is not None
        marks = [_marked(blocks) for blocks in (left, right)]
        shape = torch.broadcast_shapes(*(mark.shape[:3] for mark in marks))
        both = torch.cat([mark.expand(*shape, -1) for mark in marks], -1).sort(-1).values
        keys = both // 2
        again = keys[..., 1:] == keys[..., :-1]  # a block that both name counts once: a whole one comes first
        keys = torch.cat([keys[..., :1], keys[..., 1:].masked_fill(again, -1)], -1)
        return Blocks(keys, max(left.edge, right.edge), both % 2 == 0 if known else None)


def _marked(blocks: Blocks) -> Tensor:
    """Key blocks as even numbers where they are wholly visible, else odd; those that are none stay below zero."""
    part = 1 if blocks.whole is None else (~blocks.whole).long()
    return blocks.keys * 2 + part
