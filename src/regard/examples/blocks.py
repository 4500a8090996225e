"""Blocks of equal length, cut from all the text of a corpus: what a language model learns from."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from regard.data.prepared import PreparedCorpus
from regard.errors import RegardError
from regard.models.batch import TextBatch, collate_blocks


class Streams:
    """All documents of a corpus end to end, corpus after corpus, as they are prepared: blocks are cut from them."""

    def __init__(self, prepared: PreparedCorpus, length: int) -> None:
        column = prepared.columns["text"]
        self.flat, self.offsets, self.length, self.weights = column.flat, column.offsets, length, prepared.weights
        ends = np.searchsorted(prepared.corpus, np.arange(len(self.weights)), side="right")
        edges = self.offsets[[0, *ends.tolist()]].tolist()
        self.parts = list(pairwise(edges))  # of `flat`, one a corpus
        if not any(end - begin > length for begin, end in self.parts):
            most = max(end - begin for begin, end in self.parts)
            raise RegardError(f"the text has {most:,} tokens, too few for a block of task.length={length}; lower it")

    @property
    def short(self) -> list[int]:
        """Corpora that have text, but not enough of it for a block."""
        return [n for n, (begin, end) in enumerate(self.parts) if 0 < end - begin <= self.length]

    def starts(self, seed: int, epoch: int, running: bool = False) -> np.ndarray:
        """Where the blocks of an epoch begin: side by side from a random place on, for a corpus of weight w w times.

        Their order is random, or that of the `running` text.
        """
        random = np.random.default_rng([seed, epoch])
        found = []
        for (begin, end), weight in zip(self.parts, self.weights, strict=True):
            room = end - begin - self.length  # of the last block's first token, and the token after it
            for share in [1.0] * int(weight) + [weight - int(weight)] if room > 0 else []:
                first = begin + random.integers(min(self.length, room))
                blocks = np.arange(first, begin + room, self.length)
                kept = random.permutation(blocks)[: round(share * len(blocks))]
                found.append(np.sort(kept) if running else kept)
        starts = np.concatenate(found)
        if not len(starts):
            raise RegardError("the weights of the corpora leave no block for an epoch; raise a weight")
        return starts


class BlocksView:
    """The blocks of one epoch. Every place is learned from, so that all batches are alike in shape."""

    def __init__(self, streams: Streams, starts: np.ndarray, mark: int | None) -> None:
        self.streams, self.starts, self.mark = streams, starts, mark

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        rows = max(1, budget // self.streams.length)
        order = np.random.default_rng([seed, epoch, 1]).permutation(len(self.starts))
        return [order[n : n + rows] for n in range(0, len(order), rows)]

    def targets(self, indices: np.ndarray) -> int:
        return len(indices) * self.streams.length

    def collate(self, indices: np.ndarray) -> TextBatch:
        starts = self.starts[indices]
        ids = self.streams.flat[starts[:, None] + np.arange(self.streams.length + 1)].astype(np.int64)  # [B, T + 1]
        batch = collate_blocks(ids, names=tuple(starts.tolist()))
        if self.mark is None or not (ids[:, 1:-1] == self.mark).any():
            return batch
        # What a document's last place says is the mark of the next, which is learned at once: it costs nothing.
        return replace(batch, document=torch.from_numpy(np.cumsum(ids[:, :-1] == self.mark, axis=1)))


class RowsView(BlocksView):
    """Blocks [R, N] whose rows are running text: batch n is their nth column; every row goes on where it stopped."""

    def __init__(self, streams: Streams, starts: np.ndarray) -> None:
        super().__init__(streams, starts.ravel(), None)
        self.columns = np.arange(starts.size).reshape(starts.shape).T

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        return list(self.columns)


def along(streams: Streams, budget: int, seed: int, epoch: int) -> RowsView:
    """All the text, from a random place on, in as many rows of equal length as the budget has room for."""
    found = streams.starts(seed, epoch, running=True)
    rows = min(max(1, budget // streams.length), len(found))
    return RowsView(streams, found[: len(found) // rows * rows].reshape(rows, -1))
