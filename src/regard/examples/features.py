"""Features of fine-tuning: rows of token ids made of examples, planned into batches, padded and scored. Knows no task.

A feature is learned from at once: a text, a window of one, or all options of a question. `example` is the index of the
example it was made of: a long text has several features, whose scores are merged again.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch

from regard.examples.batching import each_batch
from regard.models.batch import RaggedRows, TextBatch
from regard.models.heads import BodyWithHead
from regard.text import Tokenizer

PAD_TO_MULTIPLE = 8  # of rows, so that shapes repeat: CUDA graphs need that, and matrix products are faster
SORT_POOL = 50  # batches whose features are sorted by length together
TOKENS = 8192  # padded tokens of a batch without gradients

W = TypeVar("W")  # a window of an example, as its task describes it


class FeatureRow(NamedTuple):
    ids: list[int]
    segments: list[int]


class Feature(NamedTuple, Generic[W]):
    rows: tuple[FeatureRow, ...]
    example: int  # index of the example it was made of
    target: Any = None  # the label, as its task encodes it; None: unknown
    window: W | None = None  # the part of the example that it holds

    @property
    def length(self) -> int:
        return max(len(row.ids) for row in self.rows)


Collate = Callable[[Sequence[Feature[W]]], TextBatch]


class RowBuilder:
    """The tokens around texts: [CLS] a [SEP], or [CLS] a [SEP] b [SEP]. A vocabulary without them has <s> and </s>."""

    causal = False

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self.pad, self.entries = tokenizer, tokenizer.pad, tokenizer.size
        self.cls = tokenizer.special.get("cls", tokenizer.bos)
        self.sep = self.end = tokenizer.special.get("sep", tokenizer.eos)

    def row(self, first: Sequence[int], second: Sequence[int] | None = None) -> FeatureRow:
        if second is None:
            return FeatureRow([self.cls, *first, self.end], [0] * (len(first) + 2))
        segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
        return FeatureRow([self.cls, *first, self.sep, *second, self.end], segments)

    def word_positions(self, words: Sequence[Sequence[int]]) -> list[int]:
        """Where in a row each word is read: at its first piece."""
        return (1 + np.cumsum([0, *map(len, words[:-1])])).tolist()

    def shown(self, ids: Sequence[int]) -> list[str]:
        """The tokens of a row, for people."""
        return self.tokenizer.shown(ids)

    @staticmethod
    def rooms(lengths: Sequence[int], length: int) -> list[int]:
        """How many tokens of one or two texts have room in a row of `length`, the longer shortened first."""
        room = length - 1 - len(lengths)
        if sum(lengths) <= room:
            return list(lengths)
        if len(lengths) == 1:
            return [room]
        shorter = min(*lengths, room // 2)
        return [shorter, room - shorter] if lengths[0] <= lengths[1] else [room - shorter, shorter]


class CausalRowBuilder(RowBuilder):
    """<s> a ⟨extract⟩, or <s> a ⟨delimiter⟩ b ⟨extract⟩: the last token alone sees all (Radford 2018, 3.3).

    <s> is what the language model began its texts with; the other two are new entries after those of its vocabulary.
    """

    causal = True
    NEW = ("<delimiter>", "<extract>")

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer)
        self.cls, self.sep, self.end = tokenizer.bos, tokenizer.size, tokenizer.size + 1
        self.entries = tokenizer.size + len(self.NEW)

    def word_positions(self, words: Sequence[Sequence[int]]) -> list[int]:
        """At its last piece, where all of it has been read."""
        return np.cumsum([len(word) for word in words]).tolist()

    def shown(self, ids: Sequence[int]) -> list[str]:
        names = iter(self.tokenizer.shown([n for n in ids if n < self.tokenizer.size]))
        return [next(names) if n < self.tokenizer.size else self.NEW[n - self.tokenizer.size] for n in ids]


def pad_features(features: Sequence[Feature[W]], pad: int, length: int) -> TextBatch:
    """The rows of all features, one after the other, with their padding mask, so that shapes repeat.

    Rows that fit in `length` are never padded beyond it: a table of positions may end there.
    """
    rows = [row for feature in features for row in feature.rows]
    ids, real = RaggedRows.of([row.ids for row in rows]).padded(pad)
    segments = RaggedRows.of([row.segments for row in rows]).padded(0)[0]
    width = ids.shape[1]
    more = -width % PAD_TO_MULTIPLE
    if width <= length:
        more = min(more, length - width)
    ids, real, segments = (
        np.pad(array, ((0, 0), (0, more)), constant_values=value)
        for array, value in ((ids, pad), (real, False), (segments, 0))
    )
    return TextBatch(torch.from_numpy(ids), torch.from_numpy(real), segments=torch.from_numpy(segments))


class FeatureView(Generic[W]):
    """The features of an epoch, `batch` in a batch. Pools of batches are sorted, so that those of like length meet."""

    def __init__(
        self,
        features: Sequence[Feature[W]],
        order: np.ndarray,
        batch: int,
        collate: Collate[W],
        count_targets: Callable[[Feature[W]], int],
    ) -> None:
        self.features, self.order, self.batch = features, order, batch
        self._collate, self._count_targets = collate, count_targets

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        """`budget` bounds a batch too: its rows times the longest of them."""
        random = np.random.default_rng([seed, epoch, 1])
        shuffled = random.permutation(len(self.order))
        lengths = np.array([self.features[n].length for n in self.order], dtype=np.int64)
        batches: list[np.ndarray] = []
        for start in range(0, len(shuffled), self.batch * SORT_POOL):
            pool = shuffled[start : start + self.batch * SORT_POOL]
            pool = pool[np.argsort(-lengths[pool], kind="stable")]
            for n in range(0, len(pool), self.batch):
                batches += self._split(pool[n : n + self.batch], budget)
        return [batches[n] for n in random.permutation(len(batches))]

    def _split(self, batch: np.ndarray, budget: int) -> list[np.ndarray]:
        """The batch, or equal parts of it that fit the budget; each is a step of its own."""
        features = [self.features[self.order[n]] for n in batch]
        each = max(feature.length for feature in features) * max(len(feature.rows) for feature in features)
        return np.array_split(batch, -(-len(batch) // max(1, budget // each)))

    def collate(self, indices: np.ndarray) -> TextBatch:
        return self._collate([self.features[self.order[n]] for n in indices])

    def targets(self, indices: np.ndarray) -> int:
        return sum(self._count_targets(self.features[self.order[n]]) for n in indices)


@torch.inference_mode()
def score_features(
    model: BodyWithHead,
    features: Sequence[Feature[W]],
    collate: Collate[W],
    on_progress: Callable[[int], None] | None = None,
) -> tuple[list[np.ndarray], float, list[Feature[W]]]:
    """The model's scores of every feature; the summed loss of those that have targets; which these are."""
    device = next(model.parameters()).device
    scores: list[np.ndarray] = [np.empty(0)] * len(features)
    order = sorted(range(len(features)), key=lambda n: (features[n].target is None, -features[n].length))
    labelled = sum(feature.target is not None for feature in features)  # they come first, in batches of their own
    loss, measured, done, was_training = 0.0, list[Feature[W]](), 0, model.training

    def batches() -> Iterator[list[int]]:
        start = 0
        while start < len(order):
            first = features[order[start]]
            longest = -(-first.length // PAD_TO_MULTIPLE) * PAD_TO_MULTIPLE
            end = start + max(1, TOKENS // (longest * len(first.rows)))
            end = min(end, labelled) if start < labelled else end
            yield order[start:end]
            start = end

    def compute(indices: list[int]) -> None:
        nonlocal loss, measured, done
        batch = collate([features[n] for n in indices]).to(device)
        logits = model.scores(batch)
        if batch.classes is not None:
            loss += float(model.loss(logits, batch))
            measured += [features[n] for n in indices]
        for n, row in zip(indices, logits.cpu().numpy(), strict=True):
            scores[n] = row
        done += len(indices)
        if on_progress:
            on_progress(done)

    model.eval()
    each_batch(batches(), compute)
    model.train(was_training)
    return scores, loss, measured
