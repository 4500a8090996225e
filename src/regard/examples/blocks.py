"""Blocks of equal length, from all the text of a corpus: the examples of a language model."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch

from regard.data.prepared import PreparedCorpus
from regard.errors import RegardError
from regard.models.batch import FurtherLabels, TextBatch, collate_blocks


class CorpusTokens:
    """All prepared documents end to end, corpus after corpus: blocks are slices of it."""

    def __init__(self, prepared: PreparedCorpus, length: int, targets: int = 1) -> None:
        """`targets`: tokens after each position of a block that are learned."""
        column, self.targets = prepared.columns["text"], targets
        self.flat, self.offsets, self.length, self.weights = column.flat, column.offsets, length, prepared.weights
        ends = np.searchsorted(prepared.corpus, np.arange(len(self.weights)), side="right")
        edges = self.offsets[[0, *ends.tolist()]].tolist()
        self.parts = list(pairwise(edges))  # of `flat`, one a corpus
        if not any(end - begin >= length + targets for begin, end in self.parts):
            most = max(end - begin for begin, end in self.parts)
            raise RegardError(f"the text has {most:,} tokens, too few for a block of task.length={length}; lower it")

    @property
    def too_short(self) -> list[int]:
        """The corpora that have text, but not enough of it for a block."""
        return [n for n, (begin, end) in enumerate(self.parts) if 0 < end - begin < self.length + self.targets]

    def block_starts(self, seed: int, epoch: int, in_order: bool = False) -> np.ndarray:
        """The first tokens of an epoch's blocks: side by side from a random offset on, w times if a corpus weighs w.

        Their order is random, or that of the text.
        """
        random = np.random.default_rng([seed, epoch])
        kept = []
        for (begin, end), weight in zip(self.parts, self.weights, strict=True):
            room = end - begin - self.length - self.targets + 1  # of the last block's first token, and those after it
            for share in [1.0] * int(weight) + [weight - int(weight)] if room > 0 else []:
                first = begin + random.integers(min(self.length, room))
                blocks = np.arange(first, begin + room, self.length)
                some = random.permutation(blocks)[: round(share * len(blocks))]
                kept.append(np.sort(some) if in_order else some)
        starts = np.concatenate(kept)
        if not len(starts):
            raise RegardError("the weights of the corpora leave no block for an epoch; raise a weight")
        return starts


class BlockView:
    """The blocks of one epoch. Every token is a target, or only what follows a block: all batches have one shape."""

    def __init__(self, stream: CorpusTokens, starts: np.ndarray, bos: int | None, last: bool = False) -> None:
        """`last`: the last position of a block alone is learned from."""
        self.stream, self.block_starts, self.bos, self.last = stream, starts, bos, last

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        rows = max(1, budget // self.stream.length)
        order = np.random.default_rng([seed, epoch, 1]).permutation(len(self.block_starts))
        return [order[n : n + rows] for n in range(0, len(order), rows)]

    def targets(self, indices: np.ndarray) -> int:
        return len(indices) * (1 if self.last else self.stream.length)

    def collate(self, indices: np.ndarray) -> TextBatch:
        starts, length, more = self.block_starts[indices], self.stream.length, self.stream.targets - 1
        whole = self.stream.flat[starts[:, None] + np.arange(length + 1 + more)].astype(np.int64)  # [B, T + targets]
        ids = whole[:, : length + 1]
        batch = collate_blocks(ids, names=tuple(starts.tolist()))
        if self.last:
            labels, at = torch.from_numpy(ids[:, -1].copy()), torch.arange(length - 1, len(ids) * length, length)
            batch = replace(batch, labels=labels, label_positions=at)
        if more:
            batch = replace(batch, further=tuple(self._further(whole, ahead) for ahead in range(2, more + 2)))
        if self.bos is None or not (ids[:, 1:-1] == self.bos).any():
            return batch
        # The target of a document's last token is the <s> of the next: it costs nothing.
        return replace(batch, document=torch.from_numpy(np.cumsum(ids[:, :-1] == self.bos, axis=1)))

    def _further(self, whole: np.ndarray, ahead: int) -> FurtherLabels:
        """Labels so many tokens ahead [N], where no <s> before them begins another document."""
        length = self.stream.length
        learned = np.zeros((len(whole), length), dtype=bool)
        learned[:, length - 1 if self.last else 0 :] = True
        for between in range(1, ahead):
            learned &= whole[:, between : between + length] != (-1 if self.bos is None else self.bos)
        labels = whole[:, ahead : ahead + length][learned]
        return FurtherLabels(torch.from_numpy(labels), torch.from_numpy(np.flatnonzero(learned)))


class ContiguousView(BlockView):
    """Blocks [R, N] whose rows are contiguous text: batch n is the nth column, so that every row continues."""

    def __init__(self, stream: CorpusTokens, starts: np.ndarray) -> None:
        super().__init__(stream, starts.ravel(), None)
        self.columns = np.arange(starts.size).reshape(starts.shape).T

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        return list(self.columns)


def contiguous_view(stream: CorpusTokens, budget: int, seed: int, epoch: int) -> ContiguousView:
    """All the text, from a random offset on, in as many rows of equal length as the budget has room for."""
    starts = stream.block_starts(seed, epoch, in_order=True)
    rows = min(max(1, budget // stream.length), len(starts))
    return ContiguousView(stream, starts[: len(starts) // rows * rows].reshape(rows, -1))
