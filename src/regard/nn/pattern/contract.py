"""Who may look at whom. A pattern is bound to what it is asked about, then answers for any (batch, head, query, key).

Patterns combine with & and |. Causal, padding and packed documents are patterns like any other.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from regard.nn.layout import AttentionContext
from regard.nn.sizes import Sizes

Shape = Literal["full", "causal", "mask"]  # what a fast backend must know: nothing hidden, only the future, or other


@dataclass(frozen=True)
class Blocks:
    """What may be visible, in blocks of positions: a superset that `allow` refines."""

    keys: Tensor  # [B or 1, H or 1, query blocks, M] key blocks that a query block may see; -1: none
    edge: int = 0  # the first so many places see all, and are seen by all, beside `keys`
    whole: Tensor | None = None  # [as keys] True where all of a block is visible, as all of the edge is; None: unknown


def require_at_least(pattern: str, name: str, value: int, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{pattern} is impossible: {name} must be a whole number of at least {least}, not {value}")


class Pattern:
    by_head = False  # True where heads differ in what they may see
    rows = 1  # more where a bound pattern itself tells the rows of a batch apart
    places: ClassVar[tuple[str, ...]] = ("encoder", "decoder", "cross")

    def check(self, longest: int) -> None:
        """Raise ValueError where sequences of at most `longest` places cannot have this pattern."""

    def build(self, sizes: Sizes) -> "Pattern":
        """With the parameters that it learns, if any (`modules`)."""
        return self

    def modules(self) -> Iterator[nn.Module]:
        return iter(())

    def bind(self, q: Tensor, call: AttentionContext, layer: int, past: bool = False) -> "Pattern":
        """The pattern of this call: what is predicted from the queries [B, H, Q, d], or drawn for a layer, binds here.

        `past` says that it stands beside a causal pattern, so that only what lies before a query is worth drawing.
        """
        return self

    def allow(self, call: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """True where query i of row b may see key j under head h; the index tensors broadcast."""
        raise TypeError(f"{type(self).__name__} must be built, and bound to a call, before it can say what is visible")

    def shape(self, call: AttentionContext) -> Shape:
        return "mask"

    def blocks(self, call: AttentionContext, size: int) -> Blocks | None:
        """Found in time linear in the length; None where any block may be visible."""
        return None

    def gain(self, call: AttentionContext) -> Tensor | None:
        """Factors on the weights after normalising [B, H, Q, K]; none for most patterns."""
        return None

    def parts(self) -> "list[Pattern]":
        """The patterns all of which must allow a place, through any depth of &."""
        return [self]

    def __and__(self, other: "Pattern") -> "Pattern":
        from regard.nn.pattern.combine import And

        return And(self, other)

    def __or__(self, other: "Pattern") -> "Pattern":
        from regard.nn.pattern.combine import Or

        return Or(self, other)

    def mask(self, call: AttentionContext, heads: int = 1) -> Tensor | None:
        """The dense form, which broadcasts to [B, H, Q, K], built once a call; None when nothing is hidden."""

        def build() -> Tensor | None:
            if self.shape(call) == "full":
                return None
            b, h, i, j = call.grid(heads if self.by_head else 1)
            if self.rows > len(b):
                b = torch.arange(self.rows, device=b.device)[:, None, None, None]
            seen = self.allow(call, b, h, i, j)
            return seen[(None,) * (4 - seen.dim())]

        return call.once(("mask", self, heads), build)
