"""Sampled segmentations: exact probabilities on small words, seeds, and equality with the plain encoding."""

import itertools
import math
from collections import Counter
from functools import cache

import numpy as np
import pytest

from regard.errors import RegardError
from regard.text import Bpe, ByteBpe, Sampler, Unigram, Word, train_tokenizer
from tests.text import corpus

LINES = corpus.ENGLISH + corpus.GERMAN + corpus.invented(200, seed=1)
BPE = train_tokenizer(Bpe(size=150, dropout=0.3), LINES)
BYTES = train_tokenizer(ByteBpe(size=330, dropout=0.3), LINES)
UNIGRAM = train_tokenizer(Unigram(size=200, alpha=0.5), LINES)


def dropout_probabilities(word, ranks, p):
    """Every way Algorithm 1 of arXiv:1910.13267 can go: a merge is dropped with p, the best is made."""

    @cache
    def follow(pieces):
        options = sorted((ranks[pair], i) for i, pair in enumerate(itertools.pairwise(pieces)) if pair in ranks)
        found: Counter = Counter({pieces: p ** len(options)})  # all dropped: done
        for skipped, (_, i) in enumerate(options):
            merged = (*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :])
            for end, chance in follow(merged).items():
                found[end] += p**skipped * (1 - p) * chance
        return found

    return follow(tuple(word))


def unigram_probabilities(word, scores, alpha):
    """p(x)^alpha, normalised over all segmentations of the word."""

    def segmentations(rest):
        if not rest:
            yield ()
        for end in range(1, len(rest) + 1):
            if rest[:end] in scores:
                yield from ((rest[:end], *more) for more in segmentations(rest[end:]))

    weights = {s: math.exp(alpha * sum(scores[piece] for piece in s)) for s in segmentations(word)}
    total = sum(weights.values())
    return {s: weight / total for s, weight in weights.items()}


def assert_drawn_from(probabilities, drawn):
    """Pearson's statistic within six standard deviations of its mean, over cells that expect five or more."""
    count = sum(drawn.values())
    assert set(drawn) <= set(probabilities)
    cells = [(drawn[s], count * p) for s, p in probabilities.items() if count * p >= 5]
    rest = count - sum(observed for observed, _ in cells), count - sum(expected for _, expected in cells)
    cells += [rest] if rest[1] >= 5 else []
    statistic = sum((observed - expected) ** 2 / expected for observed, expected in cells)
    freedom = max(len(cells) - 1, 1)
    assert statistic < freedom + 6 * math.sqrt(2 * freedom), (statistic, freedom)


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("word", ["walking", "dogs,", "aaa"])
def test_bpe_dropout_has_the_exact_probabilities(word, p):
    ranks = {tuple(pair): i for i, pair in enumerate(BPE.model["merges"])}
    expected = dropout_probabilities(word + " ", ranks, p)
    flat, starts = Sampler(BPE, dropout=p)._table([word + " "], seed=5, variants=20_000)
    rows = [flat[a:b] for a, b in itertools.pairwise(starts)]
    assert_drawn_from(expected, Counter(tuple(BPE.pieces[i] for i in row) for row in rows))


@pytest.mark.parametrize("alpha", [0.2, 1.0])
@pytest.mark.parametrize("word", ["walking", "dogs"])
def test_unigram_sampling_has_the_exact_probabilities(word, alpha):
    scores = dict(UNIGRAM.model["vocab"][4:])
    expected = unigram_probabilities(" " + word, scores, alpha)
    assert len(expected) >= 3
    flat, starts = Sampler(UNIGRAM, alpha=alpha)._table([" " + word], seed=5, variants=20_000)
    rows = [flat[a:b] for a, b in itertools.pairwise(starts)]
    assert_drawn_from(expected, Counter(tuple(UNIGRAM.pieces[i] for i in row) for row in rows))


def test_an_epoch_picks_its_variants_evenly():
    sampler = Sampler(BPE, dropout=0.5, variants=8)
    words = sampler.prepare(["walking"] * 8000)
    flat, starts = sampler._table(words.words, seed=3, variants=8)
    table = Counter(tuple(flat[a:b]) for a, b in itertools.pairwise(starts))
    ids, offsets = sampler.encode_ragged(words, seed=3, epoch=1)
    drawn = Counter(tuple(ids[a:b]) for a, b in itertools.pairwise(offsets))
    assert_drawn_from({row: count / 8 for row, count in table.items()}, drawn)


@pytest.mark.parametrize("tokenizer", [BPE, BYTES, UNIGRAM], ids=lambda t: t.kind)
def test_without_dropout_it_is_the_plain_encoding(tokenizer):
    texts = [*LINES, "", "unseen wörds ☃ here", "x" * 300, "  many   spaces "]
    assert Sampler(tokenizer).encode_batch(texts, seed=1, epoch=2) == tokenizer.encode_batch(texts)


@pytest.mark.parametrize("tokenizer", [BPE, BYTES], ids=lambda t: t.kind)
def test_the_merging_twin_agrees_with_tokenizers(tokenizer):
    """Dropout so small that nothing is dropped runs our own merges on every word."""
    texts = [*LINES, "unseen wörds ☃ here", "y" * 300]
    sampler = Sampler(tokenizer, dropout=1e-18, variants=2)
    assert sampler.encode_batch(texts, seed=1, epoch=2) == tokenizer.encode_batch(texts)


@pytest.mark.parametrize("tokenizer", [BPE, BYTES, UNIGRAM], ids=lambda t: t.kind)
def test_sampled_pieces_spell_the_same_text(tokenizer):
    sampler = tokenizer.sampler()
    rows = sampler.encode_batch(LINES, seed=1, epoch=0)
    assert [tokenizer.decode(row) for row in rows] == [tokenizer.normalise(line) for line in LINES]
    assert sum(map(len, rows)) > sum(map(len, tokenizer.encode_batch(LINES)))


@pytest.mark.parametrize("tokenizer", [BPE, UNIGRAM], ids=lambda t: t.kind)
def test_a_function_of_seed_and_epoch(tokenizer):
    first = tokenizer.sampler().encode_batch(LINES, seed=1, epoch=3)
    assert tokenizer.sampler().encode_batch(LINES, seed=1, epoch=3) == first
    assert tokenizer.sampler().encode_batch(LINES, seed=1, epoch=4) != first
    assert tokenizer.sampler().encode_batch(LINES, seed=2, epoch=3) != first


def test_a_words_variants_do_not_depend_on_the_corpus():
    sampler = BPE.sampler()
    small, large = sampler.prepare(["walking"]), sampler.prepare(LINES)
    flat, starts = sampler._table(small.words, 1, 32)
    flat2, starts2 = sampler._table(large.words, 1, 32)
    at = large.words.index("walking ") * 32
    assert [flat[starts[v] : starts[v + 1]].tolist() for v in range(32)] == [
        flat2[starts2[at + v] : starts2[at + v + 1]].tolist() for v in range(32)
    ]


def test_kinds_that_cannot_sample():
    with pytest.raises(RegardError, match="word vocabulary cannot sample"):
        train_tokenizer(Word(), LINES).sampler()
    with pytest.raises(RegardError, match="dropout belongs to bpe"):
        Sampler(UNIGRAM, dropout=0.1)


@pytest.mark.slow
def test_an_epoch_of_multi30k():
    sides = {side: corpus.real_lines(f"multi30k/train.{side}.gz") for side in ("en", "de")}
    tokenizer = train_tokenizer(Bpe(size=10_000, dropout=0.1), sides)
    sampler = tokenizer.sampler()
    prepared = sampler.prepare(sides["en"] + sides["de"])
    sampler.encode_ragged(prepared, seed=1, epoch=0)
    ids, offsets = sampler.encode_ragged(prepared, seed=1, epoch=1)
    assert len(offsets) == 58_001
    assert ids.dtype == np.int32
