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
from regard.data.readers import Record, apart, read

Form = Literal["line", "blank", "article", "file"]
LONGEST = 4_000_000  # characters: a longer document goes on as another one, at the end of a line


COLUMN = ("text",)
HEADING = re.compile(r"\s*= .* =\s*")  # as WikiText writes them: = Title =, = = Section = =
_TITLE = re.compile(r"\s*= (?!=).*(?<!=) =\s*")


def documents_of(
    corpus: Corpus, form: Form, languages: Sequence[str] | None = None, counts: Counter[str] | None = None
) -> Iterator[Record]:
    """The documents of a corpus, of a folder file by file; none goes on in another file."""
    for part in apart(corpus):
        yield from documents(read(part, COLUMN, languages, counts), form)


def documents(records: Iterable[Record], form: Form) -> Iterator[Record]:
    """The documents of a corpus; their numbers are those of their first lines."""
    if form == "line":
        return (Record(record.number, (ended(record.fields[0]),)) for record in records)
    return _gathered(records, _BEGINS[form], keep_blank=form == "file")


def _gathered(records: Iterable[Record], begins: Callable[[str, str], bool], keep_blank: bool) -> Iterator[Record]:
    held: list[str] = []
    first, size, before = 1, 0, ""
    for record in records:
        line = record.fields[0]
        if held and (size > LONGEST or begins(line, before)):
            yield Record(first, ("".join(held),))
            held, size = [], 0
        before = line
        if keep_blank or line.strip():
            first = first if held else record.number
            held.append(ended(line))
            size += len(line) + 1
    if held:
        yield Record(first, ("".join(held),))


_BEGINS: dict[str, Callable[[str, str], bool]] = {  # whether a document ends before this line; the other stood before
    "blank": lambda line, before: not line.strip(),
    "article": lambda line, before: not before.strip() and _TITLE.fullmatch(line) is not None,
    "file": lambda line, before: False,
}


def ended(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


@dataclass(frozen=True)
class Extent:
    """How much text there is, whatever cuts it into pieces: by it, results of different tokenizers compare."""

    words: int = 0  # between white space, and every end of a line, as WikiText counts them
    characters: int = 0

    @staticmethod
    def of(texts: Iterable[str]) -> "Extent":
        words = characters = 0
        for text in texts:
            words += len(text.split()) + text.count("\n")
            characters += len(text)
        return Extent(words, characters)
