"""Who may look at whom. A pattern is bound to what it is asked about, then answers for any (batch, head, query, key).

Patterns combine with & and |. Causal, padding and packed documents are patterns like any other.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.nn.layout import Call

Shape = Literal[
    "full", "causal", "mask"
]  # what a fast backend needs to know: nothing hidden, only the future, or other


class Pattern(ABC):
    by_head = False  # True where heads differ in what they may see

    def bind(self, q: Tensor, layer: int) -> "Pattern":
        """The pattern of this call: one that is predicted from the queries, or drawn for a layer, binds here."""
        return self

    @abstractmethod
    def allow(self, call: Call, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """True where query i of row b may see key j under head h; the index tensors broadcast."""

    def shape(self, call: Call) -> Shape:
        return "mask"

    def gain(self, call: Call) -> Tensor | None:
        """Factors on the weights after normalising [B, H, Q, K]; none for most patterns."""
        return None

    def __and__(self, other: "Pattern") -> "Pattern":
        return And(self, other)

    def __or__(self, other: "Pattern") -> "Pattern":
        return Or(self, other)

    def mask(self, call: Call, heads: int = 1) -> Tensor | None:
        """The dense form, which broadcasts to [B, H, Q, K], built once a call; None when nothing is hidden."""

        def build() -> Tensor | None:
            if self.shape(call) == "full":
                return None
            device = call.queries.position.device
            rows = max(side.rows for side in (call.queries, call.keys))
            b = torch.arange(rows, device=device)[:, None, None, None]
            h = torch.arange(heads if self.by_head else 1, device=device)[:, None, None]
            i = torch.arange(call.queries.length, device=device)[:, None]
            j = torch.arange(call.keys.length, device=device)[None, :]
            seen = self.allow(call, b, h, i, j)
            return seen[(None,) * (4 - seen.dim())]

        return call.once(("mask", self, heads), build)


def _at(rows: Tensor, b: Tensor, n: Tensor) -> Tensor:
    """rows[b, n], where one row may serve the whole batch."""
    return rows[0][n] if rows.shape[0] == 1 else rows[b, n]


@dataclass(frozen=True)
class Full(Pattern):
    """Everyone sees everyone."""

    def allow(self, call: Call, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.ones_like(i * j, dtype=torch.bool)

    def shape(self, call: Call) -> Shape:
        return "full"


@dataclass(frozen=True)
class Causal(Pattern):
    """No place sees a later one: position(j) ≤ position(i)."""

    def allow(self, call: Call, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return _at(call.keys.position, b, j) <= _at(call.queries.position, b, i)

    def shape(self, call: Call) -> Shape:
        q, k = call.queries, call.keys
        return "causal" if q.right_padded and k.right_padded and q.length == k.length else "mask"


@dataclass(frozen=True)
class Padding(Pattern):
    """Padded keys are invisible."""

    def allow(self, call: Call, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if call.keys.real is None:
            return torch.ones_like(i * j, dtype=torch.bool)
        return _at(call.keys.real, b, j)

    def shape(self, call: Call) -> Shape:
        return "full" if call.keys.real is None else "mask"


@dataclass(frozen=True)
class Document(Pattern):
    """Sequences packed in one row never see each other."""

    def allow(self, call: Call, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if call.keys.document is None or call.queries.document is None:
            return torch.ones_like(i * j, dtype=torch.bool)
        return _at(call.keys.document, b, j) == _at(call.queries.document, b, i)

    def shape(self, call: Call) -> Shape:
        return "full" if call.keys.document is None else "mask"


@dataclass(frozen=True)
class _Both(Pattern):
    left: Pattern
    right: Pattern

    @property
    def by_head(self) -> bool:  # type: ignore[override]
        return self.left.by_head or self.right.by_head

    def bind(self, q: Tensor, layer: int) -> Pattern:
        return type(self)(self.left.bind(q, layer), self.right.bind(q, layer))

    def gain(self, call: Call) -> Tensor | None:
        gains = [gain for part in (self.left, self.right) if (gain := part.gain(call)) is not None]
        return gains[0] * gains[1] if len(gains) == 2 else gains[0] if gains else None

    def parts(self) -> list[Pattern]:
        """What is combined, through any depth of the same combination."""
        sides = (self.left, self.right)
        return [part for side in sides for part in (side.parts() if type(side) is type(self) else [side])]


class And(_Both):
    def allow(self, call: Call, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.left.allow(call, b, h, i, j) & self.right.allow(call, b, h, i, j)

    def shape(self, call: Call) -> Shape:
        hiding = [(part, shape) for part in self.parts() if (shape := part.shape(call)) != "full"]
        if not hiding:
            return "full"
        if any(shape == "causal" for _, shape in hiding):  # padding on the right is the future of every real place
            hiding = [(part, shape) for part, shape in hiding if part != Padding()]
        return "causal" if all(shape == "causal" for _, shape in hiding) else "mask"


class Or(_Both):
    def allow(self, call: Call, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.left.allow(call, b, h, i, j) | self.right.allow(call, b, h, i, j)

    def shape(self, call: Call) -> Shape:
        return "full" if "full" in (self.left.shape(call), self.right.shape(call)) else "mask"
