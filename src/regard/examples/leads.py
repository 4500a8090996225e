"""Leads of articles as pairs: title and passages are the source, the article's first paragraph is the target.

Passages are the rest of the article, and such of other articles as a search might have found too: what belongs to the
title must be told from what does not (Liu 2018, where they are what an article cites). They are drawn anew for every
(seed, epoch); where more are drawn than are read, `long` chooses, as the paper's extraction does (4.1). Articles are
lines as WikiText writes them, with titles such as `= Title =`. Knows no model.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from regard.config import at_least, option
from regard.data.config import Corpus
from regard.data.documents import COLUMN, HEADING, TITLE
from regard.data.prepared import PreparedCorpus, epoch_rows
from regard.data.ragged import RaggedArray, RaggedSpans, RaggedTexts
from regard.data.readers import read_corpus
from regard.errors import RegardError
from regard.examples.long_text import Extract, LongConfig, Truncate
from regard.examples.pairs import PairsView
from regard.examples.vocabulary import Vocabulary
from regard.models.batch import PairBatch
from regard.text import Tokenizer
from regard.text.passages import SCORES, choose_passages

Texts = Sequence[str] | RaggedTexts  # of numbered lines


@dataclass(frozen=True)
class Leads:
    others: float = option(0.5, "share of a source's length for passages of other articles")
    tokens: int | None = option(
        None, "of title and passages that are drawn, of which task.long chooses what is read; none: all are read"
    )

    def __post_init__(self) -> None:
        if not 0 <= self.others < 1:
            raise ValueError(f"others must be in [0, 1), not {self.others}")
        at_least(self, 1, "tokens")

    def check(self, long: LongConfig, longest: int) -> None:
        """Raise ValueError where `long` cannot choose of what is drawn."""
        if self.tokens is None:
            return
        if self.tokens < longest:
            raise ValueError(
                f"task.leads.tokens is {self.tokens}, fewer than data.filters.max_length, {longest}, which are read; "
                "raise it, or leave it out"
            )
        if long not in (Truncate(), Extract("tfidf"), Extract("centrality")):
            raise ValueError("task.leads.tokens needs task.long: truncate, or extract by tfidf or centrality")

    def pairs(
        self, corpora: Sequence[Corpus], tokenizer: Tokenizer, longest: int, long: LongConfig
    ) -> list[tuple[str, str]]:
        """The pairs of a validation or test set, the same at every call."""
        records = (record for corpus in corpora for record in read_corpus(corpus, COLUMN))
        texts = [text for record in records if (text := record.fields[0].strip())]
        articles = Articles.of(texts)
        if corpora and not len(articles):
            raise no_articles(", ".join(corpus.name for corpus in corpora))
        lengths = np.array([len(ids) for ids in tokenizer.encode_batch(texts)])
        sources = self.sources(articles, np.arange(len(articles)), texts, lengths, longest, long, 0, 0)
        return [
            (" ".join(texts[row] for row in rows), texts[lead])
            for rows, lead in zip(sources, articles.lead, strict=True)
        ]

    def sources(
        self, articles: "Articles", chosen: np.ndarray, texts: Texts, lengths: np.ndarray, longest: int,
        long: LongConfig, seed: int, epoch: int,
    ) -> list[np.ndarray]:  # fmt: skip
        """For each of these articles the lines of its source, of at most `longest` tokens."""
        drawn = articles.draw(chosen, lengths, self.tokens or longest, self.others, seed, epoch)
        if self.tokens is None:
            return drawn
        return [np.concatenate([rows[:1], self._read(rows, texts, lengths, longest, long)]) for rows in drawn]

    @staticmethod
    def _read(rows: np.ndarray, texts: Texts, lengths: np.ndarray, longest: int, long: LongConfig) -> np.ndarray:
        """Of the title and passages that were drawn, the passages that are read."""
        passages, room = rows[1:], max(0, longest - int(lengths[rows[0]]))
        if not isinstance(long, Extract):
            return fitting(passages, lengths, room)
        scores = SCORES[long.by]([texts[row] for row in passages], texts[rows[0]])
        return passages[choose_passages(scores, lengths[passages].tolist(), room)]


def no_articles(name: str) -> RegardError:
    return RegardError(
        f"{name}: no article with a title (a line such as = Title =), a first paragraph and more, as task.leads needs"
    )


@dataclass(frozen=True)
class Articles:
    """Articles among numbered lines."""

    title: np.ndarray  # [articles] the line of each
    lead: np.ndarray
    passages: RaggedArray  # their other paragraphs

    def __len__(self) -> int:
        return len(self.title)

    @staticmethod
    def of(texts: Iterable[str]) -> "Articles":
        """Those that have all three."""
        found: list[list[int]] = []
        for row, text in enumerate(texts):
            if TITLE.fullmatch(text):
                found.append([row])
            elif found and not HEADING.fullmatch(text):
                found[-1].append(row)
        found = [rows for rows in found if len(rows) > 2]
        passages = [rows[2:] for rows in found]
        offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in passages], dtype=np.int64)])
        flat = np.array([row for rows in passages for row in rows], dtype=np.int64)
        title, lead = np.array([rows[:2] for rows in found], dtype=np.int64).reshape(-1, 2).T
        return Articles(title, lead, RaggedArray(flat, offsets))

    def draw(
        self, chosen: np.ndarray, lengths: np.ndarray, longest: int, others: float, seed: int, epoch: int
    ) -> list[np.ndarray]:
        """For each of these articles the lines of its source: the title, and passages in a random order.

        They have at most `longest` tokens together, given the `lengths` of all lines; none is cut.
        """
        mean = max(1, int(lengths[self.passages.flat].mean())) if len(self.passages.flat) else 1
        sources = []
        for n in chosen.tolist():
            random, (begin, end) = np.random.default_rng([seed, epoch, n]), self.passages.offsets[n : n + 2]
            room = max(0, longest - int(lengths[self.title[n]]))
            own = fitting(random.permutation(self.passages[n]), lengths, round(room * (1 - others)))
            room -= int(lengths[own].sum())
            drawn = random.integers(len(self.passages.flat), size=2 + 4 * room // mean if others else 0)
            drawn = drawn[(drawn < begin) | (drawn >= end)]
            drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]  # each once
            rows = np.concatenate([own, fitting(self.passages.flat[drawn], lengths, room)])
            sources.append(np.concatenate([self.title[[n]], random.permutation(rows)]))
        return sources


def fitting(rows: np.ndarray, lengths: np.ndarray, room: int) -> np.ndarray:
    """Those lines, one after the other, that there still is room for."""
    kept = []
    for row in rows.tolist():
        if lengths[row] <= room:
            kept.append(row)
            room -= int(lengths[row])
    return np.array(kept, dtype=np.int64)


class LeadExamples:
    """The examples of prepared lines."""

    def __init__(self, prepared: PreparedCorpus, settings: Leads, longest: int, long: LongConfig) -> None:
        self.prepared, self.settings, self.longest, self.long = prepared, settings, longest, long
        self.column, self.texts = prepared.columns["text"], prepared.text["text"]
        self.articles = Articles.of(text.strip() for text in self.texts)
        if not len(self.articles):
            raise no_articles("data.train")

    def view(self, vocabulary: Vocabulary, seed: int, epoch: int) -> "LeadsView":
        a, column = self.articles, self.column
        article = np.full(len(self.prepared), -1)
        article[a.lead] = np.arange(len(a))
        chosen = article[epoch_rows(self.prepared, seed, epoch)]
        chosen = chosen[chosen >= 0]
        rows = self.settings.sources(a, chosen, self.texts, column.lengths, self.longest, self.long, seed, epoch)
        flat, offsets = column.take(np.concatenate(rows))
        ends = offsets[np.cumsum([len(each) for each in rows])]
        lead = a.lead[chosen]
        target = RaggedSpans(column.flat, column.offsets[lead], column.offsets[lead + 1])
        return LeadsView(vocabulary, RaggedArray(flat, np.concatenate([[0], ends])), target, lead)


class LeadsView(PairsView):
    """The articles of one epoch; an example is named by the line of its lead."""

    def __init__(self, vocabulary: Vocabulary, source: RaggedArray, target: RaggedSpans, lead: np.ndarray) -> None:
        super().__init__(vocabulary, source, target, np.arange(len(lead)))
        self.lead = lead

    def collate(self, indices: np.ndarray) -> PairBatch:
        return replace(super().collate(indices), rows=tuple(self.lead[indices].tolist()))
