"""Sentences whose words have tags: CoNLL's columns, the catalog's sets, and .jsonl with lists of words and tags."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from regard.data.catalog import find_file
from regard.data.config import Corpus
from regard.data.labelled import labelled_records
from regard.data.readers import read_lines, suffix
from regard.errors import RegardError

Scheme = Literal["bio", "iob1", "plain"]
BIO_TAG = re.compile(r"O|[BI]-.+")


class TaggedSentence(NamedTuple):
    where: str  # of the sentence
    words: list[str]
    tags: list[str]  # empty: not known
    file: str = ""  # of a file with a word a line, and the line of the first word
    first_line: int = 0

    def location(self, word: int) -> str:
        return f"{self.file}, line {self.first_line + word}" if self.file else f"{self.where}, word {word + 1}"


def tagged_sentences(corpus: Corpus, scheme: Scheme) -> Iterator[TaggedSentence]:
    """The sentences; their tags are checked, and converted to BIO where the scheme is IOB1."""
    for sentence in _sentences(corpus):
        if len(sentence.words) != len(sentence.tags):
            counts = f"{len(sentence.words)} words and {len(sentence.tags)} tags"
            raise RegardError(f"{sentence.where}: {counts}; there must be one for each")
        yield sentence._replace(tags=SCHEMES[scheme](sentence))


def _sentences(corpus: Corpus) -> Iterator[TaggedSentence]:
    if corpus.path is not None and suffix(corpus.path) not in (".jsonl", ".ndjson"):
        yield from _columns(find_file(corpus.path), corpus)
        return
    for record in labelled_records(corpus):
        words = record.texts("tokens" if "tokens" in record.values else "words")
        name, line, number = record.where.rpartition(", line ")
        by_line = corpus.set is not None and line
        where = (name, int(number)) if by_line else ("", 0)
        yield TaggedSentence(record.where, words, record.texts("tags"), *where)


def _columns(path: Path, corpus: Corpus) -> Iterator[TaggedSentence]:
    """A word a line, its tag in the last column (or as `columns` counts them); a blank line ends a sentence."""
    columns = corpus.columns or [1, -1]
    if len(columns) != 2 or not all(isinstance(c, int) for c in columns):
        raise RegardError(f"{path}: columns count that of the word and that of the tag, such as [1, 4]")
    word, tag = (int(c) - (int(c) > 0) for c in columns)
    rows: list[list[str]] = []
    number = 0

    def sentence() -> TaggedSentence:
        first = number - len(rows)
        return TaggedSentence(
            f"{path}, line {first}", [row[word] for row in rows], [row[tag] for row in rows], str(path), first
        )

    for number, line in enumerate(read_lines(path), 1):
        cells = line.split()
        if cells and cells[0] != "-DOCSTART-":
            if len(cells) < max(2, word + 1, tag + 1):
                raise RegardError(f"{path}, line {number}: {len(cells)} columns; a word and its tag are needed")
            rows.append(cells)
        elif rows:
            yield sentence()
            rows = []
    if rows:
        number += 1
        yield sentence()


# --- schemes ---------------------------------------------------------------------------------------------------------


def _plain(sentence: TaggedSentence) -> list[str]:
    return sentence.tags


def _bio(sentence: TaggedSentence) -> list[str]:
    """B- begins an entity and I- continues it; anything else is a mistake, whose line is reported."""
    before = "O"
    for n, tag in enumerate(_checked_tags(sentence)):
        if tag[0] == "I" and before[2:] != tag[2:]:
            raise RegardError(
                f"{sentence.location(n)}: {tag} does not go on with anything, since {before if n else 'nothing'} comes "
                f"before it; BIO begins an entity with B-{tag[2:]} (task.scheme: iob1 reads it so)"
            )
        before = tag
    return sentence.tags


def _iob1(sentence: TaggedSentence) -> list[str]:
    """I- that continues no entity begins one: it becomes B-."""
    tags, before = [], "O"
    for tag in _checked_tags(sentence):
        tags.append(f"B-{tag[2:]}" if tag[0] == "I" and before[2:] != tag[2:] else tag)
        before = tag
    return tags


def _checked_tags(sentence: TaggedSentence) -> Sequence[str]:
    for n, tag in enumerate(sentence.tags):
        if not BIO_TAG.fullmatch(tag):
            raise RegardError(
                f"{sentence.location(n)}: the tag {tag!r} is not O, B-TYPE or I-TYPE; task.scheme: plain takes any tags"
            )
    return sentence.tags


SCHEMES = {"bio": _bio, "iob1": _iob1, "plain": _plain}
