"""Pairs of sentences as examples: read from files, put into batches by length, with the trees and links beside them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.annotations import check_word_count, with_trees
from regard.data.batches import token_budget_batches
from regard.data.config import Corpus
from regard.data.ragged import RaggedArray
from regard.data.readers import read_corpus
from regard.errors import RegardError
from regard.examples.trees import trees
from regard.examples.vocabulary import Vocabulary
from regard.models.batch import PairBatch, RaggedRows, collate_pairs
from regard.nn.layout import Tree
from regard.text import Tokenizer

COLUMNS = ("source", "target")


class PairsView:
    """Pairs of one epoch; lengths count the end of the sentence."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        source: Any,
        target: Any,
        rows: np.ndarray,
        beside: Mapping[str, RaggedArray] | None = None,
    ) -> None:
        self.vocabulary, self.source, self.target, self.rows = vocabulary, source, target, rows
        self.beside = beside or {}  # heads of the source's words, links of words, where they are given
        self.source_lengths: np.ndarray | None = source.lengths[rows] + 1
        self.target_lengths: np.ndarray = target.lengths[rows] + 1

    def plan(self, budget: int, seed: int, epoch: int) -> list[np.ndarray]:
        return token_budget_batches(self.source_lengths, self.target_lengths, budget, seed, epoch)

    def targets(self, indices: np.ndarray) -> int:
        return int(self.target_lengths[indices].sum())

    def collate(self, indices: np.ndarray) -> PairBatch:
        rows = self.rows[indices]
        source, target = RaggedRows(*self.source.take(rows)), RaggedRows(*self.target.take(rows))
        batch = collate_pairs(source, target, self.vocabulary.source, self.vocabulary.target, tuple(rows.tolist()))
        if "heads" in self.beside:
            batch = replace(batch, tree=self._tree(rows, self.beside["heads"]))
        if "links" in self.beside:
            batch = replace(batch, links=self._links(rows, self.beside["links"]))
        return batch

    def _tree(self, rows: np.ndarray, heads: RaggedArray) -> Tree:
        given, pieces = ([column[row].tolist() for row in rows] for column in (heads, self.source))
        return trees(given, pieces, self.vocabulary.source)

    def _links(self, rows: np.ndarray, links: RaggedArray) -> Tensor:
        found = []
        for n, row in enumerate(rows):
            source = self.vocabulary.source.words(self.source[row].tolist())
            target = self.vocabulary.target.words(self.target[row].tolist())
            found.append(links_of(n, links[row].reshape(-1, 2), np.array(source), np.array(target)))
        return torch.from_numpy(np.concatenate(found))


def read_pairs(corpora: list[Corpus], languages: tuple[str, str]) -> list[tuple[str, str]]:
    """All pairs of a validation or test set, empty lines included."""
    records = (record for corpus in corpora for record in read_corpus(corpus, COLUMNS, languages))
    found = [(record.fields[0], record.fields[1]) for record in records]
    if corpora and not found:
        raise RegardError(f"{', '.join(c.name for c in corpora)}: no pairs to measure on")
    return found


def read_heads(corpora: list[Corpus], languages: tuple[str, str], tokenizer: Tokenizer) -> list[list[int]] | None:
    """The heads of the words of every source of these pairs; None unless all corpora have them."""
    if not all(corpus.heads for corpus in corpora):
        return None
    found = []
    for corpus in corpora:
        for record in with_trees(read_corpus(corpus, COLUMNS, languages), corpus.heads, corpus.name):
            words = tokenizer.words(tokenizer.encode(record.fields[0]))
            check_word_count(words, record.parents or [], f"{corpus.name}, line {record.number}")
            found.append(record.parents or [])
    return found


def links_of(row: int, links: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Links of words [L, 2] as places [N, 3] of a batch's row: every piece of one word with every piece of the other.

    `source` and `target` name the word of each piece. Target places are those that say the piece.
    """
    pairs = [
        (row, t, s)
        for source_word, target_word in links
        for t in np.flatnonzero(target == target_word)
        for s in np.flatnonzero(source == source_word)
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 3)
