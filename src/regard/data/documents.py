"""Running text as documents: one a record, one between blank lines, or one a file. Knows no tokenizer.

A document is one text whose lines end in \\n. Memory holds one document at a time; endless ones are cut.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from regard.data.readers import Record

Form = Literal["line", "blank", "file"]
LONGEST = 4_000_000  # characters: a longer document goes on as another one, at the end of a line


def documents(records: Iterable[Record], form: Form) -> Iterator[Record]:
    """The documents of a corpus; their numbers are those of their first lines."""
    if form == "line":
        return (Record(record.number, (ended(record.fields[0]),)) for record in records)
    return _gathered(records, keep_blank=form == "file")


def _gathered(records: Iterable[Record], keep_blank: bool) -> Iterator[Record]:
    held: list[str] = []
    first, size = 1, 0
    for record in records:
        line = record.fields[0]
        if held and (size > LONGEST or not (keep_blank or line.strip())):
            yield Record(first, ("".join(held),))
            held, size = [], 0
        if keep_blank or line.strip():
            first = first if held else record.number
            held.append(ended(line))
            size += len(line) + 1
    if held:
        yield Record(first, ("".join(held),))


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
