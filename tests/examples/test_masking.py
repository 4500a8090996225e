"""Masks: how many, of what, what stands there instead, and that nothing but the key and the row decides."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import text
from regard.examples.masking import Masker, Masking, select_pieces, select_words
from regard.text import Tokenizer
from regard.text.config import BertPieces

LINES = ["the unhappily cat sat on the unhappy mat", "a king unkindly sails unmat seas"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return text.train_tokenizer(BertPieces(size=48, min_frequency=1), LINES * 3)


def rows(tokenizer: Tokenizer, count: int, length: int = 128) -> tuple[np.ndarray, np.ndarray]:
    """[CLS] … [SEP] and padding, some words unknown; and how many words each has."""
    draw = np.random.default_rng(0)
    ids = np.full((count, length), tokenizer.pad)
    words = draw.integers(1, length - 1, count)
    for row, size in enumerate(words):
        ids[row, 0], ids[row, size + 1] = tokenizer.bos, tokenizer.eos
        ids[row, 1 : size + 1] = draw.integers(5, tokenizer.size, size)
        ids[row, 1 : size + 1][draw.random(size) < 0.05] = tokenizer.unk
    return ids, words


@pytest.mark.parametrize("unit", ["pieces", "words"])
def test_statistics(tokenizer: Tokenizer, unit: str) -> None:
    """15% of the places; of them 80% [MASK], 10% another word of all alike, 10% themselves; never a mark."""
    ids, words = rows(tokenizer, 2000)
    masks = Masker(Masking(unit=unit), tokenizer)  # type: ignore[arg-type]
    read, places, labels = masks(ids, words, (1, 0), np.arange(len(ids)))
    assert (labels == ids.ravel()[places]).all()
    assert not set(labels.tolist()) & set(tokenizer.special.values())
    counts = np.bincount(places // ids.shape[1], minlength=len(ids))
    wanted = np.maximum(1, np.rint(0.15 * words))
    ordinary = (~np.isin(ids, list(tokenizer.special.values()))).sum(1)
    if unit == "pieces":
        assert (counts == np.minimum(wanted, ordinary)).all()
    assert (counts <= wanted).all()
    assert counts.sum() / words.sum() == pytest.approx(0.15, abs=0.004)
    stood = read.ravel()[places]
    masked, same = stood == tokenizer.mask, stood == labels
    assert masked.mean() == pytest.approx(0.8, abs=0.01)
    chance = 1 / len(masks.ordinary)
    assert (same & ~masked).mean() == pytest.approx(0.1 + 0.1 * chance, abs=0.01)
    others = stood[~masked & ~same]
    assert not set(others.tolist()) & set(tokenizer.special.values())
    assert set(others.tolist()) == set(masks.ordinary.tolist())
    untouched = np.ones(ids.size, dtype=bool)
    untouched[places] = False
    assert (read.ravel()[untouched] == ids.ravel()[untouched]).all()


def test_every_place_is_as_likely_as_any(tokenizer: Tokenizer) -> None:
    ids = np.full((4000, 22), 10)
    ids[:, 0], ids[:, -1] = tokenizer.bos, tokenizer.eos
    _, places, _ = Masker(Masking(), tokenizer)(ids, np.full(4000, 20), (3, 5), np.arange(4000))
    shares = np.bincount(places % 22, minlength=22) / 4000
    assert shares[[0, -1]].tolist() == [0, 0]
    assert shares[1:-1] == pytest.approx(0.15, abs=0.025)


def test_whole_words_are_masked_whole(tokenizer: Tokenizer) -> None:
    ids, words = rows(tokenizer, 300)
    masks = Masker(Masking(unit="words", share=0.3), tokenizer)
    _, places, _ = masks(ids, words, (1, 0), np.arange(len(ids)))
    chosen = np.zeros(ids.shape, dtype=bool)
    chosen.ravel()[places] = True
    several = 0
    for row, picked in zip(ids, chosen, strict=True):
        numbers = tokenizer.words(row.tolist())  # the oracle: an unknown piece is a word of its own
        for word in set(numbers) - {-1}:
            of_word = [picked[n] for n, other in enumerate(numbers) if other == word and row[n] != tokenizer.unk]
            assert len(set(of_word)) <= 1
            several += len(of_word) > 1 and all(of_word)
    assert several > 50


def test_what_a_cut_left_of_a_word_is_a_word_of_its_own() -> None:
    ordinary, opens = np.array([[True, False, True, True]]), np.array([[True, True, False, False]])
    draw = np.array([[0.9, 0.9, 0.1, 0.5]])
    assert select_words(draw, ordinary, opens, np.array([2])).tolist() == [[False, False, True, True]]
    assert select_words(draw, ordinary, opens, np.array([1])).tolist() == [[True, False, False, False]]


def test_a_row_depends_on_the_key_and_its_number_alone(tokenizer: Tokenizer) -> None:
    ids, words = rows(tokenizer, 40)
    masks, numbers = Masker(Masking(), tokenizer), np.arange(40)
    read, _, _ = masks(ids, words, (1, 2), numbers)
    part = numbers[7::3]
    again, _, _ = masks(ids[part], words[part], (1, 2), part)
    assert (again == read[part]).all()
    for key in ((1, 3), (2, 2)):
        assert (masks(ids, words, key, numbers)[0] != read).any(1).mean() > 0.9


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_as_many_as_there_are(seed: int, count: int) -> None:
    draw = np.random.default_rng(seed)
    ordinary, opens = draw.random((3, 9)) < 0.7, draw.random((3, 9)) < 0.6
    numbers = draw.random((3, 9))
    pieces = select_pieces(numbers, ordinary, opens, np.full(3, count))
    words = select_words(numbers, ordinary, opens, np.full(3, count))
    assert (pieces.sum(1) == np.minimum(count, ordinary.sum(1))).all()
    assert (words.sum(1) <= count).all()
    assert not (pieces & ~ordinary).any()
    assert not (words & ~ordinary).any()


def test_impossible_shares_are_refused() -> None:
    with pytest.raises(ValueError, match="share must be above 0"):
        Masking(share=0)
    with pytest.raises(ValueError, match="sum up to at most 1"):
        Masking(masked=0.9, random=0.2)
