"""What BERT reads: one or two segments of several sentences each, cut from documents (Devlin 2019, 3.1 and A.2).

Works on where sentences lie, not on what they say: knows no tokenizer and no model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Literal

import numpy as np

from regard.config import option
from regard.data.ragged import RaggedArray
from regard.errors import RegardError


class Book:
    """The sentences of all documents. One that is longer than `most` tokens counts as several."""

    def __init__(self, rows: RaggedArray, mark: int, most: int) -> None:
        """Each row is a document, in which the mark ends every sentence."""
        self.flat, self.mark = rows.flat, mark
        ends = np.flatnonzero(np.asarray(rows.flat) == mark)
        begins = np.concatenate([[0], ends[:-1] + 1]).astype(np.int64) if len(ends) else np.zeros(0, dtype=np.int64)
        self.sentences = len(ends)
        parts = -(-(ends - begins) // most)
        part = np.arange(parts.sum()) - np.repeat(np.cumsum(parts) - parts, parts)  # which of its sentence's
        self.begin = np.repeat(begins, parts) + part * most  # [sentences, and parts of long ones]
        self.end = np.minimum(self.begin + most, np.repeat(ends, parts))
        self.first = np.searchsorted(self.begin, rows.offsets)  # [documents + 1] where each document's sentences begin

    def __len__(self) -> int:
        return len(self.first) - 1

    @property
    def alone(self) -> int:
        """How many documents have one sentence only."""
        return int((np.diff(self.first) == 1).sum())

    def ids(self, begin: int, end: int, skip: int, keep: int) -> np.ndarray:
        """What is said from one place to another, marks left out: so many after the first few."""
        found = self.flat[begin:end]
        return found[found != self.mark][skip : skip + keep]


@dataclass(frozen=True)
class Examples:
    """E examples of two segments; the second is empty where there is one."""

    span: np.ndarray  # [E, 2, 2] from where to where in the book's ids
    skip: np.ndarray  # [E, 2] tokens left out at the beginning
    keep: np.ndarray  # [E, 2] tokens kept then
    apart: np.ndarray  # [E] 1 where the second does not follow the first
    document: np.ndarray  # [E] of the first segment

    def __len__(self) -> int:
        return len(self.span)

    @staticmethod
    def of(rows: Sequence[tuple[int, ...]]) -> "Examples":
        table = np.array(rows, dtype=np.int64).reshape(len(rows), 10)
        return Examples(table[:, :4].reshape(-1, 2, 2), table[:, 4:6], table[:, 6:8], table[:, 8], table[:, 9])


@dataclass(frozen=True)
class Single:
    """Sentences of one document up to the length: masked words alone."""

    marks: ClassVar[int] = 2  # [CLS] … [SEP]
    follows: ClassVar[bool] = False

    kind: Literal["single"] = "single"
    short: float = option(0.1, "how many of the examples are shorter, by a length drawn at random")

    def __post_init__(self) -> None:
        _check(self.short)

    def check(self, book: Book) -> None:
        """Any documents will do."""

    def make(self, book: Book, documents: np.ndarray, room: int, draw: Random) -> Examples:
        """The examples of these documents, of at most `room` tokens."""
        rows = []
        for document in documents.tolist():
            for first, last, _ in Chunks(book, document, room, self.short, draw):
                begin, end = int(book.begin[first]), int(book.end[last - 1])
                size = _size(book, first, last)
                skip = _binomial(draw, size - min(size, room))
                rows.append((begin, end, 0, 0, skip, 0, min(size, room), 0, 0, document))
        return Examples.of(rows)


@dataclass(frozen=True)
class Pairs:
    """Two segments: in half of the examples the second follows the first, else it is from another document.

    A chunk of one sentence has nothing that follows, so another document follows it; for each such chunk another one
    that would have been torn apart stays whole, and halves stay halves.
    """

    marks: ClassVar[int] = 3  # [CLS] … [SEP] … [SEP]
    follows: ClassVar[bool] = True

    kind: Literal["pairs"] = "pairs"
    short: float = option(0.1, "how many of the examples are shorter, by a length drawn at random")

    def __post_init__(self) -> None:
        _check(self.short)

    def check(self, book: Book) -> None:
        """Refuse documents from which no pair, or none that follows, can be made."""
        advice = "say what a document is (task.documents), or learn masked words alone (task.examples=single)"
        if len(book) < 2:
            raise RegardError(f"the text is one document, so that none is there to follow it falsely; {advice}")
        if book.alone == len(book):
            raise RegardError(f"every document is one sentence, so that none has a next one; {advice}")

    def make(self, book: Book, documents: np.ndarray, room: int, draw: Random) -> Examples:
        """The examples of these documents, of at most `room` tokens."""
        rows: list[tuple[int, ...]] = []
        owed = 0  # pairs that should have followed, but had nothing to
        for document in documents.tolist():
            chunks = Chunks(book, document, room, self.short, draw)
            for first, last, target in chunks:
                follows = draw.random() < 0.5
                cut = last if last - first == 1 else draw.randint(first + 1, last - 1)
                if cut == last:
                    owed += follows
                    follows = False
                elif not follows and owed:
                    owed, follows = owed - 1, True
                if follows:
                    other, until = cut, last
                else:
                    chunks.back(cut)  # what is not used comes again
                    other, until = self._elsewhere(book, document, target - _size(book, first, cut), draw)
                rows.append(_pair(book, (first, cut), (other, until), room, follows, document, draw))
        return Examples.of(rows)

    @staticmethod
    def _elsewhere(book: Book, document: int, room: int, draw: Random) -> tuple[int, int]:
        """Sentences of another document, from a random one on, until they fill the room."""
        other = draw.randrange(len(book) - 1)
        other += other >= document
        begin, end = int(book.first[other]), int(book.first[other + 1])
        first = last = draw.randrange(begin, end)
        while last < end and (last == first or room > 0):
            room -= int(book.end[last] - book.begin[last])
            last += 1
        return first, last


ExamplesConfig = Pairs | Single


def _check(short: float) -> None:
    if not 0 <= short <= 1:
        raise ValueError(f"short must be from 0 to 1, not {short}")


class Chunks:
    """Sentences of a document as (first, last, target): each chunk goes on until it has the target's tokens."""

    def __init__(self, book: Book, document: int, room: int, short: float, draw: Random) -> None:
        self.room, self.short, self.draw = room, short, draw
        self.next, self.last = int(book.first[document]), int(book.first[document + 1])
        self.base = self.next
        self.sizes = (book.end[self.next : self.last] - book.begin[self.next : self.last]).tolist()

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        while self.next < self.last:
            target = self.draw.randint(2, self.room) if self.draw.random() < self.short else self.room
            first, size = self.next, 0
            while self.next < self.last and size < target:
                size += self.sizes[self.next - self.base]
                self.next += 1
            yield first, self.next, target

    def back(self, place: int) -> None:
        """Go on from this sentence, which was given before."""
        self.next = place


def _size(book: Book, first: int, last: int) -> int:
    return int((book.end[first:last] - book.begin[first:last]).sum())


def _pair(
    book: Book, one: tuple[int, int], two: tuple[int, int], room: int, follows: bool, document: int, draw: Random
) -> tuple[int, ...]:
    sizes = _size(book, *one), _size(book, *two)
    kept = trimmed(*sizes, room)
    skips = tuple(_binomial(draw, size - keep) for size, keep in zip(sizes, kept, strict=True))
    spans = [(int(book.begin[first]), int(book.end[last - 1])) for first, last in (one, two)]
    return (*spans[0], *spans[1], *skips, *kept, int(not follows), document)


def trimmed(one: int, two: int, room: int) -> tuple[int, int]:
    """What is left of two lengths when the longer loses a token, the second of two equal ones, until both fit."""
    over = max(0, one + two - room)
    apart = min(over, abs(one - two))
    one, two = (one - apart, two) if one > two else (one, two - apart)
    rest = over - apart
    return one - rest // 2, two - (rest + 1) // 2


def _binomial(draw: Random, lost: int) -> int:
    """How many of the lost tokens were lost at the front, each by the toss of a coin."""
    return draw.getrandbits(lost).bit_count() if lost else 0
