"""Running text as documents: one a record, one between blank lines, one a Wikipedia article, or one a file.

Knows no tokenizer.

A document is one text whose lines end in \\n. Memory holds one document at a time; endless ones are cut.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from regard.data.config import Corpus
from regard.data.readers import TextRecord, read_corpus, split_folder

DocumentForm = Literal["line", "blank", "article", "file"]
MAX_CHARACTERS = 4_000_000  # characters: a longer document goes on as another one, at the end of a line


COLUMN = ("text",)
HEADING = re.compile(r"\s*= .* =\s*")  # as WikiText writes them: = Title =, = = Section = =
TITLE = re.compile(r"\s*= (?!=).*(?<!=) =\s*")


def iter_documents(
    corpus: Corpus, form: DocumentForm, languages: Sequence[str] | None = None, counts: Counter[str] | None = None
) -> Iterator[TextRecord]:
    """The documents of a corpus; each file of a folder begins a new one."""
    for part in split_folder(corpus):
        yield from split_documents(read_corpus(part, COLUMN, languages, counts), form)


def split_documents(records: Iterable[TextRecord], form: DocumentForm) -> Iterator[TextRecord]:
    """The documents of a corpus; their numbers are those of their first lines."""
    if form == "line":
        return (TextRecord(record.number, (with_newline(record.fields[0]),)) for record in records)
    return _join_lines(records, _BEGINS[form], keep_blank=form == "file")


def _join_lines(
    records: Iterable[TextRecord], begins: Callable[[str, str], bool], keep_blank: bool
) -> Iterator[TextRecord]:
    lines: list[str] = []
    first, size, before = 1, 0, ""
    for record in records:
        line = record.fields[0]
        if lines and (size > MAX_CHARACTERS or begins(line, before)):
            yield TextRecord(first, ("".join(lines),))
            lines, size = [], 0
        before = line
        if keep_blank or line.strip():
            first = first if lines else record.number
            lines.append(with_newline(line))
            size += len(line) + 1
    if lines:
        yield TextRecord(first, ("".join(lines),))


_BEGINS: dict[str, Callable[[str, str], bool]] = {  # whether a document ends before this line; the other stood before
    "blank": lambda line, before: not line.strip(),
    "article": lambda line, before: not before.strip() and TITLE.fullmatch(line) is not None,
    "file": lambda line, before: False,
}


def with_newline(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


@dataclass(frozen=True)
class TextSize:
    """The size of a text, which does not depend on a tokenizer: results of different tokenizers compare by it."""

    words: int = 0  # between white space, and every end of a line, as WikiText counts them
    characters: int = 0

    @staticmethod
    def count(texts: Iterable[str]) -> "TextSize":
        words = characters = 0
        for text in texts:
            words += len(text.split()) + text.count("\n")
            characters += len(text)
        return TextSize(words, characters)
