"""Passages of a text, and how much each of them says: by tf-idf against a question or the rest, or by centrality.

A passage is a paragraph, or a sentence where the text is one paragraph. Knows no model, no tokens and no budget.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from regard.text.sentences import split_sentences

_EMPTY_LINES = re.compile(r"\n[^\S\n]*(?=\n)")
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_]+")  # a Chinese character is a word
DAMPING, ROUNDS, CLOSE = 0.15, 100, 1e-9

Span = tuple[int, int]


def passage_spans(text: str) -> list[Span]:
    """The passages of a text, one after the other, with nothing between: white space belongs to what follows it."""
    starts = [0, *(match.end() for match in _EMPTY_LINES.finditer(text))]
    if sum(bool(text[a:b].strip()) for a, b in pairwise([*starts, len(text)])) < 2:
        starts, end = [0], 0
        for sentence in split_sentences(text):
            begin = text.index(sentence, end)
            starts += [end] if end else []
            end = begin + len(sentence)
    spans: list[Span] = []
    for begin, end in pairwise([*starts, len(text)]):
        if text[begin:end].strip():
            spans.append((begin, end))
        elif spans:
            spans[-1] = spans[-1][0], end
    return [(0, spans[0][1]), *spans[1:]] if spans else []


class TfIdf(NamedTuple):
    """Rows of unit length, (1 + n)/(1 + df) as smoothed idf, stored sparsely: memory grows with the text alone."""

    row: np.ndarray  # of each value
    column: np.ndarray
    value: np.ndarray
    rows: int
    idf: dict[str, tuple[int, float]]  # of each word its column, and ln((1 + n)/(1 + df)) + 1

    @staticmethod
    def of(passages: Sequence[str]) -> "TfIdf":
        counts = [words(passage) for passage in passages]
        documents = Counter(word for count in counts for word in count)
        weights = [float(np.log((1 + len(counts)) / (1 + found)) + 1) for found in documents.values()]
        idf = {word: (n, weight) for n, (word, weight) in enumerate(zip(documents, weights, strict=True))}
        entries = [(n, *entry) for n, count in enumerate(counts) for entry in _unit(count, idf)]
        row, column, value = (np.array(side) for side in zip(*entries, strict=True)) if entries else (np.zeros(0),) * 3
        return TfIdf(row.astype(int), column.astype(int), value.astype(float), len(counts), idf)

    def query(self, text: str) -> np.ndarray:
        """A text as a vector of the same columns; words that no passage has are left out."""
        vector = np.zeros(len(self.idf))
        for column, value in _unit(Counter({w: n for w, n in words(text).items() if w in self.idf}), self.idf):
            vector[column] = value
        return vector

    def times(self, vector: np.ndarray) -> np.ndarray:
        """X v, for a vector of columns."""
        return np.bincount(self.row, self.value * vector[self.column], self.rows)

    def transposed(self, vector: np.ndarray) -> np.ndarray:
        """Xᵀ v, for a vector of rows."""
        return np.bincount(self.column, self.value * vector[self.row], len(self.idf))


def words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(text.lower()))


def _unit(counts: Counter[str], idf: dict[str, tuple[int, float]]) -> list[tuple[int, float]]:
    values = [(idf[word][0], count * idf[word][1]) for word, count in counts.items()]
    length = float(np.sqrt(sum(value * value for _, value in values)))
    return [(column, value / length) for column, value in values]


def relevance(passages: Sequence[str], question: str = "") -> np.ndarray:
    """The cosine of each passage and the question, by tf-idf; without a question, of it and all the others together."""
    table = TfIdf.of(passages)
    if question.strip():
        return table.times(table.query(question))
    whole = table.transposed(np.ones(table.rows))
    own = table.times(whole)  # x · Σ, where x · x is 1; |Σ − x|² = |Σ|² − 2 x · Σ + 1
    rest = np.sqrt(np.maximum(whole @ whole - 2 * own + 1, 1e-12))
    return np.where(own > 0, (own - 1) / rest, 0.0)


def centrality(passages: Sequence[str], question: str = "") -> np.ndarray:
    """LexRank (Erkan 2004, eq. 5): p = d/n + (1 − d) Bᵀ p, where B is the cosines of the passages, rows summing to 1.

    B is never built: X (Xᵀ v) is two sparse products. A question changes nothing.
    """
    table, n = TfIdf.of(passages), len(passages)
    degree = table.times(table.transposed(np.ones(n)))
    p = np.full(n, 1 / max(1, n))
    for _ in range(ROUNDS):
        shared = np.divide(p, degree, out=np.zeros(n), where=degree > 0)
        lost = p[degree <= 0].sum() / max(1, n)  # a passage without words is like all others
        new = DAMPING / n + (1 - DAMPING) * (table.times(table.transposed(shared)) + lost)
        if np.abs(new - p).sum() < CLOSE:
            return new
        p = new
    return p


SCORES: dict[str, Callable[[Sequence[str], str], np.ndarray]] = {"tfidf": relevance, "centrality": centrality}


def choose_passages(scores: np.ndarray, sizes: Sequence[int], budget: int) -> list[int]:
    """The best passages that fit a budget together, in the order of the text; of equals the earlier."""
    chosen: list[int] = []
    for n in np.argsort(-scores, kind="stable").tolist():
        if sizes[n] <= budget:
            chosen.append(n)
            budget -= sizes[n]
    return sorted(chosen)
