"""Annotations of a text in files of their own: dependency trees (CoNLL-U) and word alignments (Pharaoh).

CoNLL-U (universaldependencies.org/format.html): sentence i belongs to the i-th line of the text that is not empty,
since it has no empty sentence. Multiword ranges (1-2) and empty nodes (1.1) are skipped, so that words are those with a
whole number. As UD asks, one word of each sentence is the root. Knows no tokenizer.

Pharaoh: line i for pair i of a text, `0-0 1-2 …`, source word - target word, from 0.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from regard.data.catalog import find_file
from regard.data.readers import TextRecord, read_lines
from regard.errors import RegardError, plural

ID, FORM, HEAD = 0, 1, 6  # columns of CoNLL-U, from 0
LINK = re.compile(r"(\d+)-(\d+)")


def read_conllu(path: Path) -> Iterator[tuple[int, list[int]]]:
    """For each sentence its first line, and the parent of each word, from 1; 0 is above the root."""
    return ((line, parents) for line, _, parents in _sentences(path))


def read_treebank(path: Path) -> Iterator[tuple[list[str], list[int]]]:
    """For each sentence its words, and the parent of each."""
    return ((words, parents) for _, words, parents in _sentences(path))


def _sentences(path: Path) -> Iterator[tuple[int, list[str], list[int]]]:
    rows = ((number, line) for number, line in enumerate(read_lines(path), 1) if not line.startswith("#"))
    for blank, block in groupby(rows, lambda row: not row[1].strip()):
        if not blank:
            yield _sentence(list(block), path)


def with_trees(records: Iterator[TextRecord], file: str | None, name: str) -> Iterator[TextRecord]:
    """The records of a text with the trees of a CoNLL-U file, if one is given; messages call the text `name`."""
    if file is None:
        yield from records
        return
    path = find_file(file)
    trees = read_conllu(path)
    for record in records:
        if not record.fields[0].strip():
            yield record._replace(parents=[])
            continue
        tree = next(trees, None)
        if tree is None:
            raise RegardError(f"{path}: the file ends before line {record.number} of {name}, which has no sentence")
        yield record._replace(parents=tree[1])
    if (more := next(trees, None)) is not None:
        raise RegardError(f"{path}, line {more[0]}: a sentence too many: {name} has no line left for it")


def check_word_count(words: Sequence[int], parents: Sequence[int], where: str) -> None:
    """Raise RegardError unless pieces that belong to these words, counted from 0, have a parent for each of them."""
    count = max(words, default=-1) + 1
    if count != len(parents):
        raise RegardError(
            f"{where}: {plural(count, 'word')} in the text, but heads for {len(parents)}; "
            "parse the text as it is cut into words here (with text.moses: true, the Moses tokens)"
        )


def check_tree(parents: Sequence[int], wheres: Sequence[str]) -> None:
    """Raise RegardError unless the parents make one tree; `wheres` are the locations of the words."""
    for head, where in zip(parents, wheres, strict=True):
        if not 0 <= head <= len(parents):
            raise RegardError(f"{where}: the head {head} is outside its sentence of {plural(len(parents), 'word')}")
    roots = [word for word, head in enumerate(parents, 1) if head == 0]
    if not roots:
        raise RegardError(f"{wheres[0]}: the sentence has no root; the head of one word must be 0")
    if len(roots) > 1:
        first, second = roots[:2]
        raise RegardError(f"{wheres[second - 1]}: a second root: words {first} and {second} both have the head 0")
    reached = set(_walk(parents))
    for word, where in enumerate(wheres, 1):
        if word not in reached:
            raise RegardError(f"{where}: the heads above word {word} go round in a circle and never come to the root")


def tree_positions(parents: Sequence[int]) -> np.ndarray:
    """[3, words + 1]: depth, enter and leave of each word (see nn's Tree); the last is the end of the sentence.

    The end is no word of the tree: it lies on nobody's path, one deeper than the deepest word.
    """
    order = _walk(parents)  # 0, the parent of the root, comes first
    depth, size = [-1] * len(order), [1] * len(order)
    for word in order[1:]:
        depth[word] = depth[parents[word - 1]] + 1
    for word in reversed(order[1:]):
        size[parents[word - 1]] += size[word]
    enter = np.argsort(order)  # the index of each word in the walk
    end = [max(depth) + 1, len(order), len(order) + 1]
    return np.column_stack([np.array([depth, enter, enter + size])[:, 1:], end])


def _walk(parents: Sequence[int]) -> list[int]:
    """Words in depth-first order, each before its children, from 0, the parent of the root."""
    children: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for word in range(len(parents), 0, -1):
        children[parents[word - 1]].append(word)
    order, stack = [], [0]
    while stack:
        order.append(stack.pop())
        stack += children[order[-1]]
    return order


def _sentence(rows: list[tuple[int, str]], path: Path) -> tuple[int, list[str], list[int]]:
    words = [(f"{path}, line {number}", line.split("\t")) for number, line in rows]
    words = [(where, cells) for where, cells in words if not _skipped(cells[ID])]
    if not words:
        raise RegardError(f"{path}, line {rows[0][0]}: a sentence without a word")
    parents = [_head(cells, word, where) for word, (where, cells) in enumerate(words, 1)]
    check_tree(parents, [where for where, _ in words])
    return rows[0][0], [cells[FORM] for _, cells in words], parents


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


# --- word alignments -------------------------------------------------------------------------


def with_alignments(records: Iterator[TextRecord], file: str | None, name: str) -> Iterator[TextRecord]:
    """The records of a text with the links of a Pharaoh file, if one is given; messages call the text `name`."""
    if file is None:
        yield from records
        return
    path = find_file(file)
    alignments = enumerate(read_lines(path), 1)
    for record in records:
        number, line = next(alignments, (0, ""))
        if not number:
            raise RegardError(f"{path}: the file ends before line {record.number} of {name}, which has no alignment")
        yield record._replace(links=_links(line, f"{path}, line {number}"))
    if (more := next(alignments, None)) is not None:
        raise RegardError(f"{path}, line {more[0]}: an alignment too many: {name} has no line left for it")


def _links(line: str, where: str) -> list[int]:
    """Source and target words in turn."""
    links: list[int] = []
    for text in line.split():
        match = LINK.fullmatch(text)
        if match is None:
            raise RegardError(f"{where}: {text!r} is not a link; write source-target, such as 0-2")
        links += [int(match[1]), int(match[2])]
    return links


def check_alignment(links: Sequence[int], source: int, target: int, where: str) -> None:
    """Raise RegardError where a link leaves the words of its pair."""
    for s, t in zip(links[::2], links[1::2], strict=True):
        if s >= source or t >= target:
            raise RegardError(
                f"{where}: the link {s}-{t} leaves the pair, which has {source} source and {target} target words here"
            )
