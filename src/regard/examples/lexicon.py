"""IBM model 1 (Brown 1993): how likely a source piece is to be translated by a target piece, by EM over sentence pairs.

    p(t | s) ∝ Σ over places of t in pairs with s:  p(t | s) / Σ over s' of the sentence and NULL of p(t | s')

From it come the candidates of a shortlist.
"""

from collections.abc import Sequence

import numpy as np

from regard.decoding.shortlist import Shortlist
from regard.errors import RegardError
from regard.examples.vocabulary import Vocabulary

ITERATIONS = 5
PAIRS = 100_000  # that are encoded, evenly spaced ones of more
CELLS = 1 << 24  # places of a source piece and a target piece that are learned from: what takes half a gigabyte


class Lexicon:
    """Source pieces s and target pieces t that stood in one sentence pair, and p(t | s); NULL is the last s."""

    def __init__(self, sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], entries: tuple[int, int]) -> None:
        """Pairs of ids, of vocabularies of so many entries; where they are too many, evenly spaced ones of them."""
        self.entries, null = entries, np.array([entries[0]])
        sizes = np.array([(len(s) + 1) * len(t) for s, t in zip(sources, targets, strict=True)])
        every = max(1, -(-int(sizes.sum()) // CELLS))
        rows = range(0, len(sizes), every)
        self.pairs = len(rows)
        with_null = [np.concatenate([null, sources[n]]) for n in rows]
        self.target = np.concatenate([targets[n] for n in rows])  # [places]
        widths = np.repeat([len(s) for s in with_null], [len(targets[n]) for n in rows])  # of each place
        self.place = np.repeat(np.arange(len(self.target), dtype=np.int32), widths)  # [cells]
        s = np.concatenate([np.tile(s, len(targets[n])) for s, n in zip(with_null, rows, strict=True)])
        keys, self.cell = np.unique(s * entries[1] + self.target[self.place], return_inverse=True)
        self.s, self.t = np.divmod(keys, entries[1])  # [kinds] of cells
        self.p = np.ones(len(keys))

    def learn(self, iterations: int = ITERATIONS) -> None:
        for _ in range(iterations):
            p = self.p[self.cell]
            share = p / np.bincount(self.place, p)[self.place]
            count = np.bincount(self.cell, share, len(self.p))
            self.p = count / np.bincount(self.s, count)[self.s]

    def best(self, count: int) -> np.ndarray:
        """The `count` likeliest target pieces of each source piece [source entries, count]; −1: there are fewer."""
        order = np.lexsort((self.t, -self.p, self.s))
        s = self.s[order]
        rank = np.arange(len(s)) - np.searchsorted(s, s)
        kept = (rank < count) & (s < self.entries[0])
        table = np.full((self.entries[0], count), -1)
        table[s[kept], rank[kept]] = self.t[order][kept]
        return table

    def frequent(self, count: int) -> np.ndarray:
        """The `count` most frequent target pieces."""
        counts = np.bincount(self.target, minlength=self.entries[1])
        order = np.lexsort((np.arange(len(counts)), -counts))[:count]
        return order[counts[order] > 0]


def shortlist_from_pairs(
    vocabulary: Vocabulary, pairs: Sequence[tuple[str, str]], candidates: int, frequent: int
) -> tuple[Shortlist, int]:
    """Of each source piece its likeliest target pieces, and the most frequent of all; and how many pairs taught it."""
    some = pairs[:: max(1, len(pairs) // PAIRS)]
    source, target = (
        [np.array(row, dtype=np.int64) for row in tokenizer.encode_batch([pair[n] for pair in some])]
        for n, tokenizer in enumerate((vocabulary.source, vocabulary.target))
    )
    rows = [n for n, (s, t) in enumerate(zip(source, target, strict=True)) if len(s) and len(t)]
    if not rows:
        raise RegardError("no sentence pairs to learn a shortlist from")
    t = vocabulary.target
    lexicon = Lexicon([source[n] for n in rows], [target[n] for n in rows], (vocabulary.source.size, t.size))
    lexicon.learn()
    always = np.unique([*lexicon.frequent(frequent), t.pad, t.unk, t.bos, t.eos])
    return Shortlist(always, lexicon.best(candidates)), lexicon.pairs
