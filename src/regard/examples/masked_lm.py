"""Masked language modelling: examples of pretraining as batches, padded to one length, masked when a batch is made."""

import numpy as np
import torch

from regard.examples.masking import Masker
from regard.examples.segments import SegmentExamples, SegmentsConfig, SentenceIndex
from regard.models.batch import TextBatch
from regard.text import Tokenizer


class MaskedLMView:
    """The examples of one epoch, whose seed and number are the key of the masks."""

    def __init__(
        self,
        index: SentenceIndex,
        examples: SegmentExamples,
        segments: SegmentsConfig,
        masker: Masker,
        tokenizer: Tokenizer,
        length: int,
        key: tuple[int, int],
    ) -> None:
        self.index, self.examples, self.segments = index, examples, segments
        self.masker, self.tokenizer, self.length, self.key = masker, tokenizer, length, key

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        rows = max(1, budget // self.length)
        order = np.random.default_rng([seed, epoch, 1]).permutation(len(self.examples))
        return [order[n : n + rows] for n in range(0, len(order), rows)]

    def targets(self, indices: np.ndarray) -> int:
        """The number of masked tokens; fewer only where a row has hardly a known word."""
        return int(self.masker.config.count(self.examples.keep[indices].sum(1)).sum())

    def collate(self, indices: np.ndarray) -> TextBatch:
        ids, segments, real = self._rows(indices)
        words = self.examples.keep[indices].sum(1)
        masked, places, labels = self.masker(ids, words, self.key, indices)
        pairs = self.segments.next_sentence
        return TextBatch(
            torch.from_numpy(masked),
            None if real.all() else torch.from_numpy(real),
            segments=torch.from_numpy(segments) if pairs else None,
            labels=torch.from_numpy(labels),
            label_positions=torch.from_numpy(places),
            classes=torch.from_numpy(self.examples.is_random_next[indices]) if pairs else None,
            rows=tuple(self.examples.document[indices].tolist()),
        )

    def _rows(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """[CLS] a [SEP], or [CLS] a [SEP] b [SEP]: ids, which segment and whether it is real, each [B, T]."""
        shape, t, e = (len(indices), self.length), self.tokenizer, self.examples
        ids, segments = np.full(shape, t.pad, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        real = np.zeros(shape, dtype=bool)
        for row, example in enumerate(indices.tolist()):
            ids[row, 0], place = t.bos, 1
            for side in range(self.segments.special_tokens - 1):
                begin, end = e.span[example, side]
                tokens = self.index.ids(begin, end, e.skip[example, side], e.keep[example, side])
                ids[row, place : place + len(tokens)] = tokens
                ids[row, place + len(tokens)] = t.eos
                segments[row, place : place + len(tokens) + 1] = side
                place += len(tokens) + 1
            real[row, :place] = True
        return ids, segments, real
