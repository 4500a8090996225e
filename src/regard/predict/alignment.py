"""Recorded attention as data: weights with named axes, and word alignments, the source word attended to most."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import torch
from torch import Tensor

from regard.config import nearest
from regard.errors import RegardError


@dataclass(frozen=True)
class NamedWeights:
    """The weights of one role, with named axes: layer, head, query, key."""

    weights: np.ndarray  # [L, H, Q, K]
    queries: list[str]  # the tokens of the third axis
    keys: list[str]  # and of the fourth

    axes = ("layer", "head", "query", "key")

    def select(
        self, layer: int | None = None, head: int | None = None, query: str | None = None, key: str | None = None
    ) -> np.ndarray:
        """The weights at a layer, a head, and the first place of a token as query or key; other axes stay."""
        places = (layer, head, self._place(self.queries, query, "query"), self._place(self.keys, key, "key"))
        return self.weights[tuple(slice(None) if place is None else place for place in places)]

    @staticmethod
    def _place(tokens: list[str], token: str | None, axis: str) -> int | None:
        if token is None:
            return None
        if token not in tokens:
            raise RegardError(f"no {axis} is {token!r}; {nearest(token, dict.fromkeys(tokens))}")
        return tokens.index(token)

    def _repr_html_(self) -> str:
        """The mean over layers and heads as a table."""
        head = "".join(f"<th>{escape(token)}</th>" for token in self.keys)
        rows = "".join(
            f"<tr><th>{escape(token)}</th>"
            + "".join(f'<td style="background: rgba(70, 110, 200, {w:.3f})">{w:.2f}</td>' for w in row)
            + "</tr>"
            for token, row in zip(self.queries, self.weights.mean((0, 1)), strict=True)
        )
        return f"<table><caption>{' × '.join(self.axes)}: mean</caption><tr><th></th>{head}</tr>{rows}</table>"


def select_heads(cross: Tensor, layer: int | None, heads: Sequence[int] | None) -> Tensor:
    """The mean weights [T, S] of some heads of one layer, out of [layers, H, T, S]; layers and heads from 1.

    By default the layer before the last, which aligns best (Garg 2019), and all its heads.
    """
    layers, count = cross.shape[:2]
    layer = max(1, layers - 1) if layer is None else layer
    if not 1 <= layer <= layers:
        raise RegardError(f"there is no layer {layer} to align by; the model attends to the source in 1 to {layers}")
    missing = [head for head in heads or [] if not 1 <= head <= count]
    if missing:
        raise RegardError(f"there is no head {missing[0]}; the layer has heads 1 to {count}")
    indices = [head - 1 for head in heads] if heads else list(range(count))
    return cross[layer - 1, indices].mean(0)


def align(weights: Tensor, source_words: Sequence[int], target_words: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs (source word, target word), one for each target word, in order.

    `weights` [T, S] belong to pieces; the words say which word each piece is part of, −1 for none. The weights of a
    target word are summed over the pieces of both words.
    """
    if not any(w >= 0 for w in source_words) or not any(w >= 0 for w in target_words):
        return []
    by_source = _sum(weights[: len(target_words), : len(source_words)].T, source_words)  # [source words, T]
    by_word = _sum(by_source.T, target_words)  # [target words, source words]
    return [(source, target) for target, source in enumerate(by_word.argmax(-1).tolist())]


def _sum(rows: Tensor, words: Sequence[int]) -> Tensor:
    """Rows [N, M] of pieces added up by word."""
    index = torch.tensor(words, device=rows.device)
    total = torch.zeros(int(index.max()) + 1, rows.shape[1], dtype=torch.float64, device=rows.device)
    return total.index_add(0, index[index >= 0], rows[index >= 0].double())


def to_pharaoh(links: Sequence[tuple[int, int]]) -> str:
    """`0-0 1-2 …`: source word - target word, both from 0."""
    return " ".join(f"{source}-{target}" for source, target in links)
