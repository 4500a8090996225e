"""Segments of BERT's pretraining: one or two, of several sentences each, from documents (Devlin 2019, 3.1 and A.2).

Works on spans of ids: knows no tokenizer and no model.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

import numpy as np

from regard.config import Choice, choice, option
from regard.data.ragged import RaggedArray
from regard.errors import RegardError


class SentenceIndex:
    """The sentences of all documents as spans of their ids. One longer than `most` tokens counts as several."""

    def __init__(self, rows: RaggedArray, sep: int, most: int) -> None:
        """Each row is a document, in which `sep` ends every sentence."""
        self.flat, self.sep = rows.flat, sep
        ends = np.flatnonzero(np.asarray(rows.flat) == sep)
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
    def single_sentence_documents(self) -> int:
        """How many documents have one sentence only."""
        return int((np.diff(self.first) == 1).sum())

    def ids(self, begin: int, end: int, skip: int, keep: int) -> np.ndarray:
        """The ids of flat[begin:end] without separators: `keep` of them after the first `skip`."""
        ids = self.flat[begin:end]
        return ids[ids != self.sep][skip : skip + keep]


@dataclass(frozen=True)
class SegmentExamples:
    """E examples of two segments; the second is empty where there is one."""

    span: np.ndarray  # [E, 2, 2] begin and end in the flat ids
    skip: np.ndarray  # [E, 2] tokens left out at the beginning
    keep: np.ndarray  # [E, 2] tokens kept then
    is_random_next: np.ndarray  # [E] 1 where the second does not follow the first
    document: np.ndarray  # [E] of the first segment

    def __len__(self) -> int:
        return len(self.span)

    @staticmethod
    def of(rows: Sequence[tuple[int, ...]]) -> "SegmentExamples":
        table = np.array(rows, dtype=np.int64).reshape(len(rows), 10)
        return SegmentExamples(table[:, :4].reshape(-1, 2, 2), table[:, 4:6], table[:, 6:8], table[:, 8], table[:, 9])


class SegmentsConfig(Choice, slot="segments"):
    """How examples are made of sentences."""

    must_define = ("make",)
    special_tokens: ClassVar[int]
    next_sentence: ClassVar[bool]  # whether it is learned which segment follows

    def check(self, index: SentenceIndex) -> None:
        """Refuse documents from which no examples can be made."""

    def make(self, index: SentenceIndex, documents: np.ndarray, room: int, rng: Random) -> SegmentExamples:
        """The examples of these documents, of at most `room` tokens."""
        raise NotImplementedError


@choice("single")
class SingleSegments(SegmentsConfig):
    """Sentences of one document up to the length: masked words alone."""

    special_tokens: ClassVar[int] = 2  # [CLS] … [SEP]
    next_sentence: ClassVar[bool] = False

    short: float = option(0.1, "how many of the examples are shorter, by a length drawn at random")

    def __post_init__(self) -> None:
        _check(self.short)

    def make(self, index: SentenceIndex, documents: np.ndarray, room: int, rng: Random) -> SegmentExamples:
        rows = []
        for document in documents.tolist():
            for first, last, _ in SentenceChunks(index, document, room, self.short, rng):
                begin, end = int(index.begin[first]), int(index.end[last - 1])
                size = _size(index, first, last)
                skip = _binomial(rng, size - min(size, room))
                rows.append((begin, end, 0, 0, skip, 0, min(size, room), 0, 0, document))
        return SegmentExamples.of(rows)


@choice("pairs")
class SegmentPairs(SegmentsConfig):
    """Two segments: in half of the examples the second follows the first, else it is from another document.

    A chunk of one sentence has nothing that follows, so another document follows it; for each such chunk another one
    that would have got a random next segment keeps its own, and halves stay halves.
    """

    special_tokens: ClassVar[int] = 3  # [CLS] … [SEP] … [SEP]
    next_sentence: ClassVar[bool] = True

    short: float = option(0.1, "how many of the examples are shorter, by a length drawn at random")

    def __post_init__(self) -> None:
        _check(self.short)

    def check(self, index: SentenceIndex) -> None:
        """Refuse documents from which no pair, or none that follows, can be made."""
        advice = "say what a document is (task.documents), or learn masked words alone (task.examples=single)"
        if len(index) < 2:
            raise RegardError(f"the text is one document, so that none is there to follow it falsely; {advice}")
        if index.single_sentence_documents == len(index):
            raise RegardError(f"every document is one sentence, so that none has a next one; {advice}")

    def make(self, index: SentenceIndex, documents: np.ndarray, room: int, rng: Random) -> SegmentExamples:
        rows: list[tuple[int, ...]] = []
        owed = 0  # pairs that should have had their next segment, but had none
        for document in documents.tolist():
            chunks = SentenceChunks(index, document, room, self.short, rng)
            for first, last, target in chunks:
                follows = rng.random() < 0.5
                cut = last if last - first == 1 else rng.randint(first + 1, last - 1)
                if cut == last:
                    owed += follows
                    follows = False
                elif not follows and owed:
                    owed, follows = owed - 1, True
                if follows:
                    other, until = cut, last
                else:
                    chunks.rewind(cut)  # what is not used comes again
                    other, until = self._random_segment(index, document, target - _size(index, first, cut), rng)
                rows.append(_pair(index, (first, cut), (other, until), room, follows, document, rng))
        return SegmentExamples.of(rows)

    @staticmethod
    def _random_segment(index: SentenceIndex, document: int, room: int, rng: Random) -> tuple[int, int]:
        """Sentences of another document, from a random one on, up to `room` tokens."""
        other = rng.randrange(len(index) - 1)
        other += other >= document
        begin, end = int(index.first[other]), int(index.first[other + 1])
        first = last = rng.randrange(begin, end)
        while last < end and (last == first or room > 0):
            room -= int(index.end[last] - index.begin[last])
            last += 1
        return first, last


def _check(short: float) -> None:
    if not 0 <= short <= 1:
        raise ValueError(f"short must be from 0 to 1, not {short}")


class SentenceChunks:
    """Sentences of a document as (first, last, target): each chunk goes on until it has the target's tokens."""

    def __init__(self, index: SentenceIndex, document: int, room: int, short: float, rng: Random) -> None:
        self.room, self.short, self.rng = room, short, rng
        self.next, self.last = int(index.first[document]), int(index.first[document + 1])
        self.base = self.next
        self.sizes = (index.end[self.next : self.last] - index.begin[self.next : self.last]).tolist()

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        while self.next < self.last:
            target = self.rng.randint(2, self.room) if self.rng.random() < self.short else self.room
            first, size = self.next, 0
            while self.next < self.last and size < target:
                size += self.sizes[self.next - self.base]
                self.next += 1
            yield first, self.next, target

    def rewind(self, sentence: int) -> None:
        """Continue from this sentence, which was in a chunk before."""
        self.next = sentence


def _size(index: SentenceIndex, first: int, last: int) -> int:
    return int((index.end[first:last] - index.begin[first:last]).sum())


def _pair(
    index: SentenceIndex,
    one: tuple[int, int],
    two: tuple[int, int],
    room: int,
    follows: bool,
    document: int,
    rng: Random,
) -> tuple[int, ...]:
    sizes = _size(index, *one), _size(index, *two)
    kept = truncate_pair(*sizes, room)
    skips = tuple(_binomial(rng, size - keep) for size, keep in zip(sizes, kept, strict=True))
    spans = [(int(index.begin[first]), int(index.end[last - 1])) for first, last in (one, two)]
    return (*spans[0], *spans[1], *skips, *kept, int(not follows), document)


def truncate_pair(one: int, two: int, room: int) -> tuple[int, int]:
    """Two lengths after the longer has lost a token, the second of two equal ones, until both fit."""
    over = max(0, one + two - room)
    apart = min(over, abs(one - two))
    one, two = (one - apart, two) if one > two else (one, two - apart)
    rest = over - apart
    return one - rest // 2, two - (rest + 1) // 2


def _binomial(rng: Random, lost: int) -> int:
    """How many of the lost tokens are lost at the front, each with probability 1/2."""
    return rng.getrandbits(lost).bit_count() if lost else 0
