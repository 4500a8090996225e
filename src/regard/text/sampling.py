"""Segmentations drawn at random while training: BPE-dropout (arXiv:1910.13267), Unigram (arXiv:1804.10959).

`tokenizers` samples too, but cannot be seeded. Here the pieces of an epoch are a function of (seed, epoch):
for every distinct word a table of segmentations is drawn once, from the word and the seed alone, and an epoch
picks one of them for every occurrence. The sampler knows no files and no batches.
"""

import hashlib
import itertools
import math
import random
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.text.tokenizer import Tokenizer

VARIANTS = 32  # segmentations in the table of a word
MOST_VARIANTS = 4_000_000  # of all words together; with more words, fewer each
LONGEST = 64  # symbols; longer words are not words, and keep their plain segmentation
NEVER = np.iinfo(np.int64).max


@dataclass
class WordCorpus:
    """Texts as the numbers of their words: those of text i are index[offsets[i] : offsets[i + 1]]."""

    words: list[str]
    index: np.ndarray  # [occurrences] int32
    offsets: np.ndarray  # [texts + 1] int64
    tables: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False)


class Sampler:
    """Draws segmentations by a bpe, byte_bpe or unigram vocabulary; plain ones at dropout and alpha 0."""

    def __init__(
        self, tokenizer: "Tokenizer", dropout: float = 0.0, alpha: float = 0.0, variants: int = VARIANTS
    ) -> None:
        if tokenizer.kind not in ("bpe", "byte_bpe", "gpt2", "unigram"):
            raise RegardError(f"a {tokenizer.kind} vocabulary cannot sample; bpe, byte_bpe and unigram can")
        if (dropout and tokenizer.kind == "unigram") or (alpha and tokenizer.kind != "unigram"):
            raise RegardError("dropout belongs to bpe and byte_bpe, alpha to unigram")
        self.tokenizer, self.dropout, self.alpha = tokenizer, dropout, alpha
        self.variants = variants if dropout or alpha else 1
        model = tokenizer.model
        if tokenizer.kind == "unigram":
            self.scores = {piece: (i, alpha * score) for i, (piece, score) in enumerate(model["vocab"])}
            self.longest = max(len(piece) for piece, _ in model["vocab"])
        else:
            self.merges = _Merges(model["vocab"], model["merges"])

    def prepare(self, texts: Iterable[str]) -> WordCorpus:
        """The words of the texts; done once for a corpus."""
        tokenizer = self.tokenizer
        split = tokenizer.inner.pre_tokenizer.pre_tokenize_str
        numbers: dict[str, int] = {}
        index, offsets = array("i"), array("q", [0])  # a list would take ten times the memory
        for text in texts:
            prepared = tokenizer.prepare(text)
            if tokenizer.kind == "bpe":  # what `split` does, faster
                index.extend(numbers.setdefault(word, len(numbers)) for word in prepared.split(" ")[:-1])
            else:
                index.extend(numbers.setdefault(word, len(numbers)) for word, _ in split(prepared))
            offsets.append(len(index))
        words = [word + " " for word in numbers] if tokenizer.kind == "bpe" else list(numbers)
        return WordCorpus(words, np.array(index, dtype=np.int32), np.array(offsets, dtype=np.int64))

    def encode_ragged(self, corpus: WordCorpus, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """All ids of an epoch, end to end, and offsets: text i is ids[offsets[i] : offsets[i + 1]]."""
        variants = max(min(self.variants, MOST_VARIANTS // max(len(corpus.words), 1)), 1)
        if (seed, variants) not in corpus.tables:
            corpus.tables[seed, variants] = self._table(corpus.words, seed, variants)
        pieces, starts = corpus.tables[seed, variants]
        choice = np.random.default_rng([seed, epoch]).integers(0, variants, len(corpus.index), dtype=np.int32)
        chosen = corpus.index.astype(np.int64) * variants + choice  # [occurrences]
        ids, ends = _gather(pieces, starts, chosen)
        return ids, ends[corpus.offsets]

    def encode_batch(self, texts: Sequence[str], seed: int, epoch: int) -> list[list[int]]:
        ids, offsets = self.encode_ragged(self.prepare(texts), seed, epoch)
        return [ids[a:b].tolist() for a, b in itertools.pairwise(offsets)]

    def _table(self, words: list[str], seed: int, variants: int) -> tuple[np.ndarray, np.ndarray]:
        """Ids of variant v of word w at starts[w * variants + v], for all words end to end."""
        if variants == 1:
            rows = [[ids] for ids in _plain(self.tokenizer, words)]
        elif self.tokenizer.kind == "unigram":
            rows = self._unigram_rows(words, seed, variants)
        else:
            return self._bpe_table(words, seed, variants)
        return _flatten([ids for row in rows for ids in row])

    # --- BPE-dropout: each possible merge is left out with probability `dropout`, anew at every step

    def _bpe_table(self, words: list[str], seed: int, variants: int) -> tuple[np.ndarray, np.ndarray]:
        symbols = self.merges.symbols(words, self.tokenizer.unk)
        order = np.argsort([len(s) for s in symbols], kind="stable")
        long = [int(i) for i in order if len(symbols[i]) > LONGEST]
        flats, counts = [], []  # in the order of `order`
        short = order[: len(order) - len(long)]
        for chunk in np.array_split(short, len(short) * variants // 20_000 + 1):
            width = max((len(symbols[i]) for i in chunk), default=0)
            state = np.full((len(chunk), width), -1, dtype=np.int64)  # [words, symbols]
            for row, i in enumerate(chunk):
                state[row, : len(symbols[i])] = symbols[i]
            keys = np.array([_hash(words[i], seed) for i in chunk], dtype=np.uint64)
            with np.errstate(over="ignore"):
                keys = _mix(keys[:, None] + np.arange(variants, dtype=np.uint64)).reshape(-1)  # [words * variants]
            state = self.merges.run(np.repeat(state, variants, axis=0), keys, self.dropout)
            flats.append(state[state >= 0])
            counts.append((state >= 0).sum(1))
        for ids in _plain(self.tokenizer, [words[i] for i in long]):
            flats.append(np.tile(ids, variants))
            counts.append(np.full(variants, len(ids)))
        flat = np.concatenate([np.empty(0, np.int64), *flats]).astype(np.int32)
        starts = np.concatenate([[0], np.cumsum(np.concatenate([np.empty(0, np.int64), *counts]))])
        back = np.argsort(order)[:, None] * variants + np.arange(variants)  # [words, variants]
        return _gather(flat, starts, back.reshape(-1))

    # --- Unigram: p(segmentation) ∝ (product of p(piece))^alpha, by forward sums and backward draws

    def _unigram_rows(self, words: list[str], seed: int, variants: int) -> list[list[list[int]]]:
        plain = _plain(self.tokenizer, words)
        rows = []
        for word, ids in zip(words, plain, strict=True):
            if len(word) > LONGEST or self.tokenizer.unk in ids:
                rows.append([ids] * variants)
                continue
            draw = random.Random(_hash(word, seed)).random
            lattice = self._lattice(word)
            rows.append([_backward(lattice, draw) for _ in range(variants)])
        return rows

    def _lattice(self, word: str) -> list[list[tuple[float, int, int]]]:
        """For every end, the pieces that end there: (probability given the end, summed up; start; id)."""
        total = [0.0] + [-math.inf] * len(word)  # log of the sum over all segmentations of word[:end]
        lattice: list[list[tuple[float, int, int]]] = [[]]
        for end in range(1, len(word) + 1):
            ways = [
                (total[start] + scored[1], start, scored[0])
                for start in range(max(end - self.longest, 0), end)
                if total[start] > -math.inf and (scored := self.scores.get(word[start:end]))
            ]
            cumulated: list[tuple[float, int, int]] = []
            if ways:
                top = max(way[0] for way in ways)
                mass = sum(math.exp(way[0] - top) for way in ways)
                total[end] = top + math.log(mass)
                running = 0.0
                for score, start, piece in ways:
                    running += math.exp(score - total[end])
                    cumulated.append((running, start, piece))
            lattice.append(cumulated)
        return lattice


def _backward(lattice: list[list[tuple[float, int, int]]], draw: Callable[[], float]) -> list[int]:
    ids = []
    end = len(lattice) - 1
    while end:
        number = draw()
        for running, start, piece in lattice[end]:  # noqa: B007
            if number < running:
                break
        ids.append(piece)
        end = start
    return ids[::-1]


class _Merges:
    """The merges of a BPE model as arrays: for the pair (a, b), its rank and what it becomes."""

    def __init__(self, vocabulary: dict[str, int], merges: Sequence[Sequence[str]]) -> None:
        self.vocabulary, self.size = vocabulary, len(vocabulary)
        ids = vocabulary.__getitem__
        rows = [(ids(a) * self.size + ids(b), rank, ids(a + b)) for rank, (a, b) in enumerate(merges)]
        table = np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)
        self.keys, self.ranks, self.merged = table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy()

    def symbols(self, words: Sequence[str], unknown: int) -> list[list[int]]:
        return [[self.vocabulary.get(c, unknown) for c in word] for word in words]

    def run(self, state: np.ndarray, keys: np.ndarray, dropout: float) -> np.ndarray:
        """Merge every row [N, L] of symbol ids (-1 after the end) until no merge survives the dropout."""
        done = np.full_like(state, -1)
        live = np.arange(len(state))  # the rows of `done` that `state` still works on
        step = np.uint64(0)
        while len(live) and state.shape[1] > 1 and len(self.keys):
            left, right = state[:, :-1], state[:, 1:]  # [n, L - 1]
            pair = np.where(right >= 0, left * self.size + right, -1)
            at = np.minimum(np.searchsorted(self.keys, pair), len(self.keys) - 1)
            rank = np.where(self.keys[at] == pair, self.ranks[at], NEVER)
            with np.errstate(over="ignore"):
                counter = keys[live, None] + (step << np.uint64(32)) + np.arange(rank.shape[1], dtype=np.uint64)
            uniform = (_mix(counter) >> np.uint64(11)) * 2.0**-53
            rank[uniform < dropout] = NEVER
            best = rank.argmin(1)  # the leftmost of the first in rank
            going = rank[np.arange(len(live)), best] != NEVER
            done[live[~going], : state.shape[1]] = state[~going]
            state, live, best, at = state[going], live[going], best[going], at[going]
            merged = self.merged[at[np.arange(len(live)), best]]
            # The merged piece takes the left place; every place right of it takes its right neighbour.
            place = np.arange(state.shape[1] - 1)
            state = np.where(place <= best[:, None], state[:, :-1], state[:, 1:])
            state[np.arange(len(live)), best] = merged
            step += np.uint64(1)
        done[live, : state.shape[1]] = state
        return done


def _plain(tokenizer: "Tokenizer", words: Sequence[str]) -> list[list[int]]:
    """Ids of words as `prepare` gives them to the model."""
    model = tokenizer.inner.model
    return [[token.id for token in model.tokenize(word)] for word in words]


def _flatten(rows: Sequence[Sequence[int] | np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    flat = np.concatenate([np.asarray(row, dtype=np.int32) for row in rows]) if rows else np.empty(0, np.int32)
    return flat, starts


def _gather(flat: np.ndarray, starts: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The chosen rows of a ragged array, end to end, and where each begins."""
    lengths = starts[chosen + 1] - starts[chosen]
    ends = np.concatenate([[0], np.cumsum(lengths)])
    where = np.repeat(starts[chosen] - ends[:-1], lengths) + np.arange(ends[-1])
    return flat[where], ends


def _hash(word: str, seed: int) -> int:
    """A number from the word and the seed that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(f"{seed} {word}".encode(), digest_size=8).digest(), "little")


def _mix(x: np.ndarray) -> np.ndarray:
    """SplitMix64's finaliser (Steele 2014): neighbouring counters become independent numbers."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(x ^ (x >> np.uint64(31)))
