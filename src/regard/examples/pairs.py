"""Sentence pairs as examples: read from files, batched by length, with dependency trees and word alignments."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.annotations import check_tree, check_word_count, tree_positions, with_trees
from regard.data.batches import token_budget_batches
from regard.data.config import Corpus
from regard.data.ragged import RaggedArray
from regard.data.readers import read_corpus
from regard.errors import RegardError
from regard.examples.vocabulary import Vocabulary
from regard.models.batch import PairBatch, RaggedRows, collate_pairs
from regard.models.transformer import Transformer
from regard.nn.layout import Tree
from regard.text import Tokenizer

COLUMNS = ("source", "target")
Heads = Sequence[Sequence[int]]  # for each line the head of each word, from 1; 0 is above the root


class PairsView:
    """The pairs of one epoch; lengths count </s>."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        source: Any,
        target: Any,
        rows: np.ndarray,
        annotations: Mapping[str, RaggedArray] | None = None,
    ) -> None:
        self.vocabulary, self.source, self.target, self.rows = vocabulary, source, target, rows
        self.annotations = annotations or {}  # heads of the source's words, links of words, where they are known
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
        if "heads" in self.annotations:
            batch = replace(batch, tree=self._tree(rows, self.annotations["heads"]))
        if "links" in self.annotations:
            batch = replace(batch, links=self._links(rows, self.annotations["links"]))
        return batch

    def _tree(self, rows: np.ndarray, heads: RaggedArray) -> Tree:
        parents, pieces = ([column[row].tolist() for row in rows] for column in (heads, self.source))
        return piece_trees(parents, pieces, self.vocabulary.source)

    def _links(self, rows: np.ndarray, links: RaggedArray) -> Tensor:
        links_by_row = []
        for n, row in enumerate(rows):
            source = self.vocabulary.source.words(self.source[row].tolist())
            target = self.vocabulary.target.words(self.target[row].tolist())
            links_by_row.append(piece_links(n, links[row].reshape(-1, 2), np.array(source), np.array(target)))
        return torch.from_numpy(np.concatenate(links_by_row))


def packed_batch(model: nn.Module, batch: PairBatch) -> PairBatch | None:
    """The batch without padding, in shapes that repeat, where the model takes it so; else None."""
    return batch.fixed() if isinstance(model, Transformer) and model.takes_packed(batch) else None


def read_pairs(corpora: Sequence[Corpus], languages: tuple[str, str]) -> list[tuple[str, str]]:
    """All pairs of a validation or test set, empty lines included."""
    records = (record for corpus in corpora for record in read_corpus(corpus, COLUMNS, languages))
    pairs = [(record.fields[0], record.fields[1]) for record in records]
    if corpora and not pairs:
        raise RegardError(f"{', '.join(c.name for c in corpora)}: no pairs to measure on")
    return pairs


def read_heads(corpora: Sequence[Corpus], languages: tuple[str, str], tokenizer: Tokenizer) -> list[list[int]] | None:
    """The heads of the words of every source sentence; None unless all corpora have them."""
    if not all(corpus.heads for corpus in corpora):
        return None
    heads = []
    for corpus in corpora:
        for record in with_trees(read_corpus(corpus, COLUMNS, languages), corpus.heads, corpus.name):
            words = tokenizer.words(tokenizer.encode(record.fields[0]))
            check_word_count(words, record.parents or [], f"{corpus.name}, line {record.number}")
            heads.append(record.parents or [])
    return heads


def piece_links(row: int, links: np.ndarray, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Links of words [L, 2] as (row, target, source) of pieces [N, 3]: every piece of one word with every of the other.

    `source` and `target` are the word of each piece. A target piece is at the position that predicts it.
    """
    links_of_pieces = [
        (row, t, s)
        for source_word, target_word in links
        for t in np.flatnonzero(target == target_word)
        for s in np.flatnonzero(source == source_word)
    ]
    return np.array(links_of_pieces, dtype=np.int64).reshape(-1, 3)


def check_trees(heads: Heads, rows: Sequence[Sequence[int]], tokenizer: Tokenizer, before: int = 0) -> None:
    """Raise RegardError unless each row of pieces has one tree over its words; `before` lines came earlier."""
    if len(heads) != len(rows):
        raise RegardError(f"{len(rows)} lines, but heads for {len(heads)}; give a list for each, empty if the line is")
    for number, (parents, ids) in enumerate(zip(heads, rows, strict=True), before + 1):
        check_word_count(tokenizer.words(ids), parents, f"line {number}")
        if parents:
            check_tree(parents, [f"line {number}"] * len(parents))


def piece_trees(heads: Heads, rows: Sequence[Sequence[int]], tokenizer: Tokenizer) -> Tree:
    """The tree positions of every row's pieces, and of its </s>: every piece of a word has its word's."""
    rows_of = [
        tree_positions(parents)[:, [*tokenizer.words(ids), -1]] for parents, ids in zip(heads, rows, strict=True)
    ]
    padded = np.zeros((3, len(rows_of), max(part.shape[1] for part in rows_of)), dtype=np.int64)  # [3, B, S]
    for row, part in enumerate(rows_of):
        padded[:, row, : part.shape[1]] = part
    return Tree(*torch.from_numpy(padded))
