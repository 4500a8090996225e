"""What fine-tuning puts into batches: units of rows, planned, padded and read by a model. Knows no task.

A unit is what is learned from at once: a text, a window of one, or all options of a question. Its `owner` is the
example it belongs to: long texts have several units, which are joined again by it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import nn

from regard.models.batch import RaggedRows, TextBatch
from regard.text import Tokenizer

MULTIPLE = 8  # rows are padded to lengths that come again: recorded launches need that, and products like it
POOL = 50  # batches whose examples are sorted by length together
TOKENS = 8192  # padded tokens that a model reads at once when nothing is learned


class Row(NamedTuple):
    ids: list[int]
    segments: list[int]


class Unit(NamedTuple):
    rows: tuple[Row, ...]
    owner: int  # which example this is, or is a part of
    target: Any = None  # what should be said; None: nothing is known
    part: Any = None  # what of the example it is, as its task says it

    @property
    def length(self) -> int:
        return max(len(row.ids) for row in self.rows)


Collate = Callable[[Sequence[Unit]], TextBatch]


class Marks:
    """The tokens around texts: [CLS] a [SEP], or [CLS] a [SEP] b [SEP]. A vocabulary without them has <s> and </s>."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.pad = tokenizer.pad
        self.cls = tokenizer.special.get("cls", tokenizer.bos)
        self.sep = tokenizer.special.get("sep", tokenizer.eos)

    def row(self, first: Sequence[int], second: Sequence[int] | None = None) -> Row:
        ids, segments = [self.cls, *first, self.sep], [0] * (len(first) + 2)
        if second is not None:
            ids, segments = [*ids, *second, self.sep], segments + [1] * (len(second) + 1)
        return Row(ids, segments)

    def fit(self, sides: Sequence[list[int]], length: int) -> tuple[Row, bool]:
        """One or two texts as a row of at most so many places, and whether they were cut to fit, the longer first."""
        room = length - 1 - len(sides)
        lengths = [len(side) for side in sides]
        over = sum(lengths) - room
        if over > 0 and len(sides) == 2:
            shorter = int(lengths[0] > lengths[1])
            kept = min(lengths[shorter], room // 2)
            lengths[shorter], lengths[1 - shorter] = kept, room - kept
        elif over > 0:
            lengths = [room]
        return self.row(*(side[:n] for side, n in zip(sides, lengths, strict=True))), over > 0


def windows(sizes: Sequence[int], room: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Words of so many pieces each, as windows [begin, end) of at most `room` pieces that share at most `overlap`."""
    begin = 0
    while True:
        end, used = begin, 0
        while end < len(sizes) and (used + sizes[end] <= room or end == begin):
            used, end = used + sizes[end], end + 1
        yield begin, end
        if end == len(sizes):
            return
        begin, least, shared = end, begin + 1, 0
        most = min(overlap, room - sizes[end])  # the next word must fit too
        while begin > least and shared + sizes[begin - 1] <= most:
            begin, shared = begin - 1, shared + sizes[begin - 1]


def padded(units: Sequence[Unit], pad: int) -> TextBatch:
    """The rows of all units, one after the other; padding always has its mask, so that shapes come again."""
    rows = [row for unit in units for row in unit.rows]
    ids, real = RaggedRows.of([row.ids for row in rows]).padded(pad)
    segments = RaggedRows.of([row.segments for row in rows]).padded(0)[0]
    more = -ids.shape[1] % MULTIPLE
    ids, real, segments = (
        np.pad(array, ((0, 0), (0, more)), constant_values=filler)
        for array, filler in ((ids, pad), (real, False), (segments, 0))
    )
    return TextBatch(torch.from_numpy(ids), torch.from_numpy(real), segments=torch.from_numpy(segments))


class UnitsView:
    """The units of an epoch, so many a batch. Those of like length meet: pools of some batches are sorted."""

    def __init__(self, units: Sequence[Unit], order: np.ndarray, batch: int, collate: Collate, count: Any) -> None:
        self.units, self.order, self.batch, self._collate, self._count = units, order, batch, collate, count

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        """`budget` bounds a batch too: its rows times the longest of them."""
        random = np.random.default_rng([seed, epoch, 1])
        places = random.permutation(len(self.order))
        lengths = np.array([self.units[n].length for n in self.order], dtype=np.int64)
        batches: list[np.ndarray] = []
        for start in range(0, len(places), self.batch * POOL):
            pool = places[start : start + self.batch * POOL]
            pool = pool[np.argsort(-lengths[pool], kind="stable")]
            for n in range(0, len(pool), self.batch):
                batches += self._within(pool[n : n + self.batch], budget)
        return [batches[n] for n in random.permutation(len(batches))]

    def _within(self, batch: np.ndarray, budget: int) -> list[np.ndarray]:
        """The batch, or the equal parts that the budget allows; each is a step of its own."""
        units = [self.units[self.order[n]] for n in batch]
        each = max(unit.length for unit in units) * max(len(unit.rows) for unit in units)
        return np.array_split(batch, -(-len(batch) // max(1, budget // each)))

    def collate(self, indices: np.ndarray) -> TextBatch:
        return self._collate([self.units[self.order[n]] for n in indices])

    def targets(self, indices: np.ndarray) -> int:
        return sum(self._count(self.units[self.order[n]]) for n in indices)


@torch.inference_mode()
def read(
    model: nn.Module, units: Sequence[Unit], collate: Collate, told: Callable[[int], None] | None = None
) -> tuple[list[np.ndarray], float, list[Unit]]:
    """The model's scores of every unit; the loss of those that have targets, summed; which these are."""
    headed, device = cast(Any, model), next(model.parameters()).device
    found: list[np.ndarray] = [np.empty(0)] * len(units)
    order = sorted(range(len(units)), key=lambda n: (units[n].target is None, -units[n].length))
    known = sum(unit.target is not None for unit in units)  # they come first, and in batches of their own
    loss, measured, start, was_training = 0.0, list[Unit](), 0, model.training
    model.eval()
    while start < len(order):
        longest = -(-units[order[start]].length // MULTIPLE) * MULTIPLE
        end = start + max(1, TOKENS // (longest * len(units[order[start]].rows)))
        taken = order[start : min(end, known) if start < known else end]
        batch = collate([units[n] for n in taken]).to(device)
        scores = headed.scores(batch)
        if batch.classes is not None:
            loss += float(headed.loss(scores, batch))
            measured += [units[n] for n in taken]
        for n, row in zip(taken, scores.cpu().numpy(), strict=True):
            found[n] = row
        start += len(taken)
        if told:
            told(start)
    model.train(was_training)
    return found, loss, measured
