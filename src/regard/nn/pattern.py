"""Who may look at whom. A pattern is bound to a call and then answers for any (batch, head, query, key).

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

    def mask(self, call: Call) -> Tensor | None:
        """The dense form, which broadcasts to [B, H, Q, K], built once a call; None when nothing is hidden."""

        def build() -> Tensor | None:
            if self.shape(call) == "full":
                return None
            device = call.queries.position.device
            rows = max(
                side.position.shape[0] if side.real is None else side.real.shape[0]
                for side in (call.queries, call.keys)
            )
            b = torch.arange(rows, device=device)[:, None, None, None]
            h = torch.zeros(1, 1, 1, 1, dtype=torch.long, device=device)
            i = torch.arange(call.queries.length, device=device)[:, None]
            j = torch.arange(call.keys.length, device=device)[None, :]
            seen = self.allow(call, b, h, i, j)
            return seen[(None,) * (4 - seen.dim())]

        return call.once(("mask", self), build)


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
class And(Pattern):
    left: Pattern
    right: Pattern

    def allow(self, call: Call, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.left.allow(call, b, h, i, j) & self.right.allow(call, b, h, i, j)

    def shape(self, call: Call) -> Shape:
        shapes = {self.left.shape(call), self.right.shape(call)}
        if shapes == {"causal", "mask"} and Padding() in (self.left, self.right):
            return "causal"  # padding on the right is the future of every real place
        shapes.discard("full")
        return shapes.pop() if len(shapes) == 1 else "mask" if shapes else "full"


@dataclass(frozen=True)
class Or(Pattern):
    left: Pattern
    right: Pattern

    def allow(self, call: Call, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.left.allow(call, b, h, i, j) | self.right.allow(call, b, h, i, j)

    def shape(self, call: Call) -> Shape:
        return "full" if "full" in (self.left.shape(call), self.right.shape(call)) else "mask"
