"""Dependency trees from CoNLL-U files (universaldependencies.org/format.html): the head of every word of a text.

Sentence i belongs to the i-th line of the text that is not empty: CoNLL-U has no empty sentence. Multiword ranges (1-2)
and empty nodes (1.1) are skipped, so that words are those with a whole number. As UD asks, one word a sentence is the
root. Knows no tokenizer.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from regard.data.paths import find
from regard.data.readers import Record, lines
from regard.errors import RegardError, plural

ID, HEAD = 0, 6  # columns, from 0
Row = tuple[int, str]  # a line of the file, and its number


def sentences(path: Path) -> Iterator[tuple[int, list[int]]]:
    """For each sentence the line it begins in, and the head of each word, from 1; 0 is above the root."""
    rows = ((number, line) for number, line in enumerate(lines(path), 1) if not line.startswith("#"))
    for blank, block in groupby(rows, lambda row: not row[1].strip()):
        if not blank:
            yield _sentence(list(block), path)


def beside(records: Iterator[Record], heads: str | None, name: str) -> Iterator[Record]:
    """The records of a text with the heads of a file, if one is given; `name` is what messages call the text."""
    if heads is None:
        yield from records
        return
    path = find(heads)
    found = sentences(path)
    for record in records:
        if not record.fields[0].strip():
            yield record._replace(heads=[])
            continue
        sentence = next(found, None)
        if sentence is None:
            raise RegardError(f"{path}: the file ends before line {record.number} of {name}, which has no sentence")
        yield record._replace(heads=sentence[1])
    if (more := next(found, None)) is not None:
        raise RegardError(f"{path}, line {more[0]}: a sentence too many: {name} has no line left for it")


def check_words(words: Sequence[int], heads: Sequence[int], where: str) -> None:
    """Raise RegardError unless pieces that belong to these words, counted from 0, have a head for each of them."""
    count = max(words, default=-1) + 1
    if count != len(heads):
        raise RegardError(
            f"{where}: {plural(count, 'word')} in the text, but heads for {len(heads)}; "
            "parse the text as it is cut into words here (with text.moses: true, the Moses tokens)"
        )


def check_heads(heads: Sequence[int], wheres: Sequence[str]) -> None:
    """Raise RegardError unless the heads make one tree. `wheres` says where each word stands."""
    for head, where in zip(heads, wheres, strict=True):
        if not 0 <= head <= len(heads):
            raise RegardError(f"{where}: the head {head} is outside its sentence of {plural(len(heads), 'word')}")
    roots = [word for word, head in enumerate(heads, 1) if head == 0]
    if not roots:
        raise RegardError(f"{wheres[0]}: the sentence has no root; the head of one word must be 0")
    if len(roots) > 1:
        first, second = roots[:2]
        raise RegardError(f"{wheres[second - 1]}: a second root: words {first} and {second} both have the head 0")
    reached = set(_walk(heads))
    for word, where in enumerate(wheres, 1):
        if word not in reached:
            raise RegardError(f"{where}: the heads above word {word} go round in a circle and never come to the root")


def places(heads: Sequence[int]) -> np.ndarray:
    """[3, words + 1]: depth, enter and leave of each word (see nn's Tree); the last is the end of the sentence.

    The end is no word of the tree: it lies on nobody's path, one deeper than the deepest word.
    """
    order = _walk(heads)  # 0, the place above the root, comes first
    depth, size = [-1] * len(order), [1] * len(order)
    for word in order[1:]:
        depth[word] = depth[heads[word - 1]] + 1
    for word in reversed(order[1:]):
        size[heads[word - 1]] += size[word]
    enter = np.argsort(order)  # when the walk comes by each word
    end = [max(depth) + 1, len(order), len(order) + 1]
    return np.column_stack([np.array([depth, enter, enter + size])[:, 1:], end])


def _walk(heads: Sequence[int]) -> list[int]:
    """Words in the order of a walk through the tree, each before those below it, from the place above the root."""
    below: list[list[int]] = [[] for _ in range(len(heads) + 1)]
    for word in range(len(heads), 0, -1):
        below[heads[word - 1]].append(word)
    order, ahead = [], [0]
    while ahead:
        order.append(ahead.pop())
        ahead += below[order[-1]]
    return order


def _sentence(rows: list[Row], path: Path) -> tuple[int, list[int]]:
    words = [(f"{path}, line {number}", line.split("\t")) for number, line in rows]
    words = [(where, cells) for where, cells in words if not _skipped(cells[ID])]
    if not words:
        raise RegardError(f"{path}, line {rows[0][0]}: a sentence without a word")
    heads = [_head(cells, word, where) for word, (where, cells) in enumerate(words, 1)]
    check_heads(heads, [where for where, _ in words])
    return rows[0][0], heads


def _skipped(identity: str) -> bool:
    """Is this a multiword range (1-2) or an empty node (1.1)?"""
    return any(all(part.isdecimal() for part in identity.split(mark)) for mark in "-." if mark in identity)


def _head(cells: list[str], word: int, where: str) -> int:
    if len(cells) <= HEAD:
        raise RegardError(f"{where}: {plural(len(cells), 'column')}; CoNLL-U has 10, with tabs between them")
    if cells[ID] != str(word):
        raise RegardError(f"{where}: the word's number is {cells[ID]!r}, not {word}")
    try:
        return int(cells[HEAD])
    except ValueError:
        raise RegardError(f"{where}: the head is {cells[HEAD]!r}, not a number") from None
