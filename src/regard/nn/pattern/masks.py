"""The patterns that follow from where things stand: all, the past, what is real, the same document."""

from typing import ClassVar

import torch
from torch import Tensor

from regard.config import mechanism
from regard.nn.layout import AttentionContext, at, distance
from regard.nn.pattern.contract import Pattern, Shape


@mechanism("M0", "all (i, j)", "Vaswani 2017, 3.2")
class Full(Pattern):
    """Everyone sees everyone."""

    def allow(self, call: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.ones_like(i * j, dtype=torch.bool)

    def shape(self, call: AttentionContext) -> Shape:
        return "full"


@mechanism("M2", "position(j) ≤ position(i)", "Vaswani 2017, 3.2.3")
class Causal(Pattern):
    """No place sees a later one; a decoder always has it."""

    places: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    def allow(self, call: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return distance(call, b, i, j) <= 0

    def shape(self, call: AttentionContext) -> Shape:
        q, k = call.queries, call.keys
        if q.start >= k.end - 1:  # the next word of rows that are equally long: all keys lie before it
            return "full"
        return "causal" if q.right_padded and k.right_padded and q.length == k.length else "mask"


@mechanism("M1", "j is real", "—")
class Padding(Pattern):
    """Padded keys are invisible; every attention has it."""

    def allow(self, call: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if call.keys.real is None:
            return torch.ones_like(i * j, dtype=torch.bool)
        return at(call.keys.real, b, j)

    def shape(self, call: AttentionContext) -> Shape:
        return "full" if call.keys.real is None else "mask"


@mechanism("M8", "document(i) = document(j)", "—")
class Document(Pattern):
    """Sequences packed in one row never see each other, nor do beams; every attention has it."""

    def allow(self, call: AttentionContext, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if call.queries.past is not None:
            return call.queries.past[b, i, j]
        if call.keys.document is None or call.queries.document is None:
            return torch.ones_like(i * j, dtype=torch.bool)
        return at(call.keys.document, b, j) == at(call.queries.document, b, i)

    def shape(self, call: AttentionContext) -> Shape:
        return "full" if call.keys.document is None and call.queries.past is None else "mask"
