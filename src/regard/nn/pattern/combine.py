"""Patterns of patterns: & narrows, | widens."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.nn.layout import AttentionContext
from regard.nn.pattern.contract import Blocks, Pattern, Shape
from regard.nn.pattern.masks import Causal, Padding
from regard.nn.sizes import Sizes


@dataclass(frozen=True)
class _Both(Pattern):
    left: Pattern
    right: Pattern

    @property
    def by_head(self) -> bool:  # type: ignore[override]
        return self.left.by_head or self.right.by_head

    @property
    def rows(self) -> int:  # type: ignore[override]
        return max(self.left.rows, self.right.rows)

    @property
    def places(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(place for place in self.left.places if place in self.right.places)

    def check(self, longest: int) -> None:
        self.left.check(longest)
        self.right.check(longest)

    def build(self, sizes: Sizes) -> Pattern:
        return type(self)(self.left.build(sizes), self.right.build(sizes))

    def modules(self) -> Iterator[nn.Module]:
        yield from self.left.modules()
        yield from self.right.modules()

    def bind(self, q: Tensor, call: AttentionContext, layer: int, past: bool = False) -> Pattern:
        return type(self)(self.left.bind(q, call, layer, past), self.right.bind(q, call, layer, past))

    def gain(self, call: AttentionContext) -> Tensor | None:
        gains = [gain for part in (self.left, self.right) if (gain := part.gain(call)) is not None]
        return gains[0] * gains[1] if len(gains) == 2 else gains[0] if gains else None


class And(_Both):
    def parts(self) -> list[Pattern]:
        return [*self.left.parts(), *self.right.parts()]

    def bind(self, q: Tensor, call: AttentionContext, layer: int, past: bool = False) -> Pattern:
        return super().bind(q, call, layer, past or Causal() in self.parts())

    def allow(self, call: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.left.allow(call, b, h, i, j) & self.right.allow(call, b, h, i, j)

    def shape(self, call: AttentionContext) -> Shape:
        hiding = [(part, shape) for part in self.parts() if (shape := part.shape(call)) != "full"]
        if not hiding:
            return "full"
        if any(shape == "causal" for _, shape in hiding):  # padding on the right is the future of every real place
            hiding = [(part, shape) for part, shape in hiding if part != Padding()]
        return "causal" if all(shape == "causal" for _, shape in hiding) else "mask"

    def blocks(self, call: AttentionContext, size: int) -> Blocks | None:
        """What both allow lies within what either does: the shorter list will do, but the other may hide some of it."""
        found = [blocks for side in (self.left, self.right) if (blocks := side.blocks(call, size)) is not None]
        return replace(min(found, key=lambda blocks: blocks.keys.shape[-1]), whole=None) if found else None


class Or(_Both):
    def allow(self, call: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.left.allow(call, b, h, i, j) | self.right.allow(call, b, h, i, j)

    def shape(self, call: AttentionContext) -> Shape:
        return "full" if "full" in (self.left.shape(call), self.right.shape(call)) else "mask"

    def blocks(self, call: AttentionContext, size: int) -> Blocks | None:
        left, right = self.left.blocks(call, size), self.right.blocks(call, size)
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
