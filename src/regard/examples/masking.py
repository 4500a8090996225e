"""Masking: which tokens are predicted, and what replaces them (Devlin 2019, 3.1, A.1). Knows no documents."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from regard.config import option
from regard.text import Tokenizer


@dataclass(frozen=True)
class Masking:
    unit: Literal["pieces", "words"] = option(
        "pieces", "what is drawn: single pieces, or whole words with all their pieces"
    )
    share: float = option(0.15, "of the places that are guessed")
    masked: float = option(0.8, "of those: how many read [MASK]")
    random: float = option(0.1, "of those: how many read another word, drawn at random; the rest read what they are")

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ValueError(f"share must be above 0 and at most 1, not {self.share}")
        if self.masked < 0 or self.random < 0 or self.masked + self.random > 1:
            raise ValueError(
                f"masked and random are shares that sum up to at most 1, not {self.masked} and {self.random}"
            )

    def count(self, words: np.ndarray) -> np.ndarray:
        """How many of so many tokens [B] are predicted: at least one."""
        return np.maximum(1, np.rint(self.share * words)).astype(np.int64)

    def __str__(self) -> str:
        return f"{self.share:.0%} of {self.unit} ({self.masked:.0%} masked, {self.random:.0%} random)"


class Masker:
    """Masks rows of ids. The mask of a row is a function of the key and its own number: no batch matters."""

    def __init__(self, config: Masking, tokenizer: Tokenizer) -> None:
        assert tokenizer.mask is not None
        self.config, self.mask = config, tokenizer.mask
        self.select = {"pieces": select_pieces, "words": select_words}[config.unit]
        special = sorted({*tokenizer.special.values()})
        self.ordinary = np.setdiff1d(np.arange(tokenizer.size), special)  # what may be predicted, or replace another
        self.is_ordinary = np.zeros(tokenizer.size, dtype=bool)
        self.is_ordinary[self.ordinary] = True
        pieces = [tokenizer.inner.id_to_token(i) or "" for i in range(tokenizer.size)]
        self.starts_word = np.array([tokenizer.piece_format.starts_word(piece, "") for piece in pieces])

    def __call__(
        self, ids: np.ndarray, words: np.ndarray, key: tuple[int, int], rows: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The masked ids [B, T]; the places [N] of targets in [B·T]; the targets [N].

        `words` [B] counts the tokens of each row without special tokens and padding, `rows` [B] are the rows' numbers.
        """
        draws = np.stack([_draws(key, int(row), ids.shape[1]) for row in rows])  # [B, 3, T]
        chosen = self.select(draws[:, 0], self.is_ordinary[ids], self.starts_word[ids], self.config.count(words))
        places = np.flatnonzero(chosen)
        targets = ids.ravel()[places]
        what, which = (draws[:, n].ravel()[places] for n in (1, 2))
        other = self.ordinary[(which * len(self.ordinary)).astype(np.int64)]
        c, masked = self.config, ids.copy()
        replaced = np.where(what < c.masked + c.random, other, targets)
        masked.ravel()[places] = np.where(what < c.masked, self.mask, replaced)
        return masked, places, targets


def _draws(key: tuple[int, int], row: int, length: int) -> np.ndarray:
    """Three numbers in [0, 1) for every token [3, T], by a counter-based generator: any row at once."""
    generator = np.random.Philox(key=np.array(key, dtype=np.uint64), counter=[0, row, 0, 0])
    return np.random.Generator(generator).random((3, length))


def select_pieces(draw: np.ndarray, ordinary: np.ndarray, starts_word: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The `counts` [B] ordinary places of each row with the smallest draws; True there [B, T]."""
    keys = np.where(ordinary, draw, np.inf)
    last = np.minimum(counts, keys.shape[1]) - 1
    edge = np.take_along_axis(np.sort(keys, axis=1), last[:, None], axis=1)
    return ordinary & (keys <= edge)


def select_words(draw: np.ndarray, ordinary: np.ndarray, starts_word: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Whole words, as long as they fit into the `counts` [B] of each row; True at their pieces [B, T]."""
    chosen = np.zeros_like(ordinary)
    # After a special token a word begins, even if its first pieces were cut off.
    after_special = np.pad(~ordinary, ((0, 0), (1, 0)), constant_values=True)[:, :-1]
    begins = ordinary & (starts_word | after_special)
    for row, room in enumerate(counts.tolist()):
        starts = np.flatnonzero(begins[row])
        word = np.where(ordinary[row], np.cumsum(begins[row]), 0)  # [T], from 1
        sizes = np.bincount(word, minlength=len(starts) + 1)[1:].tolist()
        taken = np.zeros(len(starts) + 1, dtype=bool)
        for number in np.argsort(draw[row, starts]).tolist():
            if sizes[number] <= room:
                taken[number + 1] = True
                room -= sizes[number]
            if not room:
                break
        chosen[row] = taken[word]
    return chosen
