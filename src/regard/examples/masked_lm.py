"""Examples of pretraining as batches: framed by marks, padded to one length, masked when a batch is made."""

from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.examples.masking import Masks
from regard.examples.segments import Book, Examples
from regard.models.batch import TextBatch
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.tasks.pretraining import PretrainingConfig


class ExamplesView:
    """The examples of one epoch, whose seed and number are the key of the masks."""

    def __init__(
        self,
        book: Book,
        examples: Examples,
        masks: Masks,
        tokenizer: Tokenizer,
        settings: "PretrainingConfig",
        key: tuple[int, int],
    ) -> None:
        self.book, self.examples, self.masks, self.tokenizer = book, examples, masks, tokenizer
        self.settings, self.key = settings, key

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        rows = max(1, budget // self.settings.length)
        order = np.random.default_rng([seed, epoch, 1]).permutation(len(self.examples))
        return [order[n : n + rows] for n in range(0, len(order), rows)]

    def targets(self, indices: np.ndarray) -> int:
        """Less are masked only where a row has hardly a word that is known."""
        return int(self.settings.masking.count(self.examples.keep[indices].sum(1)).sum())

    def collate(self, indices: np.ndarray) -> TextBatch:
        ids, segments, real = self._rows(indices)
        words = self.examples.keep[indices].sum(1)
        read, places, labels = self.masks(ids, words, self.key, indices)
        follows = self.settings.examples.follows
        return TextBatch(
            torch.from_numpy(read),
            None if real.all() else torch.from_numpy(real),
            segments=torch.from_numpy(segments) if follows else None,
            labels=torch.from_numpy(labels),
            label_positions=torch.from_numpy(places),
            classes=torch.from_numpy(self.examples.apart[indices]) if follows else None,
            rows=tuple(self.examples.document[indices].tolist()),
        )

    def _rows(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[CLS] a [SEP], or [CLS] a [SEP] b [SEP]: ids, which segment and whether it is real, each [B, T]."""
        shape, t, e = (len(indices), self.settings.length), self.tokenizer, self.examples
        ids, segments = np.full(shape, t.pad, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        real = np.zeros(shape, dtype=bool)
        for row, index in enumerate(indices.tolist()):
            ids[row, 0], place = t.bos, 1
            for side in range(self.settings.examples.marks - 1):
                begin, end = e.span[index, side]
                said = self.book.ids(begin, end, e.skip[index, side], e.keep[index, side])
                ids[row, place : place + len(said)] = said
                ids[row, place + len(said)] = t.eos
                segments[row, place : place + len(said) + 1] = side
                place += len(said) + 1
            real[row, :place] = True
        return ids, segments, real
