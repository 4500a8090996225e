"""Sentences whose words have tags: CoNLL's columns, the catalog's sets, and .jsonl with lists of words and tags."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from regard.data.config import Corpus
from regard.data.items import items
from regard.data.paths import find
from regard.data.readers import lines, suffix
from regard.errors import RegardError

Scheme = Literal["bio", "iob1", "plain"]
BIO = re.compile(r"O|[BI]-.+")


class Tagged(NamedTuple):
    where: str  # of the sentence
    words: list[str]
    tags: list[str]  # none where nothing is known
    file: str = ""  # where a line is a word: the file, and the line of the first
    first: int = 0

    def at(self, word: int) -> str:
        return f"{self.file}, line {self.first + word}" if self.file else f"{self.where}, word {word + 1}"


def tagged(corpus: Corpus, scheme: Scheme) -> Iterator[Tagged]:
    """The sentences; their tags are checked, and made BIO where the scheme is IOB1."""
    for sentence in _sentences(corpus):
        if len(sentence.words) != len(sentence.tags):
            many = f"{len(sentence.words)} words and {len(sentence.tags)} tags"
            raise RegardError(f"{sentence.where}: {many}; there must be one for each")
        yield sentence._replace(tags=SCHEMES[scheme](sentence))


def _sentences(corpus: Corpus) -> Iterator[Tagged]:
    if corpus.path is not None and suffix(corpus.path) not in (".jsonl", ".ndjson"):
        yield from _columns(find(corpus.path), corpus)
        return
    for item in items(corpus):
        words = item.texts("tokens" if "tokens" in item.values else "words")
        name, line, number = item.where.rpartition(", line ")
        by_line = corpus.set is not None and line
        where = (name, int(number)) if by_line else ("", 0)
        yield Tagged(item.where, words, item.texts("tags"), *where)


def _columns(path: Path, corpus: Corpus) -> Iterator[Tagged]:
    """A word a line, its tag in the last column (or as `columns` counts them); a blank line ends a sentence."""
    columns = corpus.columns or [1, -1]
    if len(columns) != 2 or not all(isinstance(c, int) for c in columns):
        raise RegardError(f"{path}: columns count that of the word and that of the tag, such as [1, 4]")
    word, tag = (int(c) - (int(c) > 0) for c in columns)
    held: list[list[str]] = []
    number = 0

    def sentence() -> Tagged:
        first = number - len(held)
        return Tagged(
            f"{path}, line {first}", [row[word] for row in held], [row[tag] for row in held], str(path), first
        )

    for number, line in enumerate(lines(path), 1):
        cells = line.split()
        if cells and cells[0] != "-DOCSTART-":
            if len(cells) < max(2, word + 1, tag + 1):
                raise RegardError(f"{path}, line {number}: {len(cells)} columns; a word and its tag are needed")
            held.append(cells)
        elif held:
            yield sentence()
            held = []
    if held:
        number += 1
        yield sentence()


# --- schemes ---------------------------------------------------------------------------------------------------------


def _plain(sentence: Tagged) -> list[str]:
    return sentence.tags


def _bio(sentence: Tagged) -> list[str]:
    """B- begins an entity and I- goes on with it; anything else is a mistake, which is told with its line."""
    before = "O"
    for n, tag in enumerate(_known(sentence)):
        if tag[0] == "I" and before[2:] != tag[2:]:
            raise RegardError(
                f"{sentence.at(n)}: {tag} does not go on with anything, since {before if n else 'nothing'} comes "
                f"before it; BIO begins an entity with B-{tag[2:]} (task.scheme: iob1 reads it so)"
            )
        before = tag
    return sentence.tags


def _iob1(sentence: Tagged) -> list[str]:
    """I- that goes on with nothing begins an entity: it becomes B-."""
    found, before = [], "O"
    for tag in _known(sentence):
        found.append(f"B-{tag[2:]}" if tag[0] == "I" and before[2:] != tag[2:] else tag)
        before = tag
    return found


def _known(sentence: Tagged) -> Sequence[str]:
    for n, tag in enumerate(sentence.tags):
        if not BIO.fullmatch(tag):
            raise RegardError(
                f"{sentence.at(n)}: the tag {tag!r} is not O, B-TYPE or I-TYPE; task.scheme: plain takes any tags"
            )
    return sentence.tags


SCHEMES = {"bio": _bio, "iob1": _iob1, "plain": _plain}
