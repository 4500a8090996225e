"""The dependency trees of a batch: the heads of words, given with the text, become places of pieces."""

from collections.abc import Sequence

import numpy as np
import torch

from regard.data.annotations import check_tree, check_word_count, tree_positions
from regard.errors import RegardError
from regard.nn.layout import Tree
from regard.text import Tokenizer

Heads = Sequence[Sequence[int]]  # for each line the head of each word, from 1; 0 is above the root


def check(heads: Heads, rows: Sequence[Sequence[int]], tokenizer: Tokenizer, before: int = 0) -> None:
    """Raise RegardError unless each row of pieces has one tree over its words; `before` lines came earlier."""
    if len(heads) != len(rows):
        raise RegardError(f"{len(rows)} lines, but heads for {len(heads)}; give a list for each, empty if the line is")
    for number, (given, ids) in enumerate(zip(heads, rows, strict=True), before + 1):
        check_word_count(tokenizer.words(ids), given, f"line {number}")
        if given:
            check_tree(given, [f"line {number}"] * len(given))


def trees(heads: Heads, rows: Sequence[Sequence[int]], tokenizer: Tokenizer) -> Tree:
    """The places of every row's pieces, and of its end: every piece of a word takes its word's place."""
    found = [
        tree_positions(given)[:, [*tokenizer.words(ids), -1]] for given, ids in zip(heads, rows, strict=True)
    ]  # [3, N]
    full = np.zeros((3, len(found), max(part.shape[1] for part in found)), dtype=np.int64)
    for row, part in enumerate(found):
        full[:, row, : part.shape[1]] = part
    return Tree(*torch.from_numpy(full))
