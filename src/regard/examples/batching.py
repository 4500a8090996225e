"""Batches of rows for inference, with little padding. Knows no text and no model."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from regard.reporting import say_once

LESS = "the GPU is out of memory: going on with half as much at a time"
LESS_TOKENS = "the GPU is out of memory: going on with half as much at a time; lower batch_tokens (--batch-tokens)"


def by_length(lengths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Rows in batches of like length, longest first, within a budget of padded tokens; empty rows are left out."""
    order = sorted((n for n in range(len(lengths)) if lengths[n]), key=lambda n: -lengths[n])
    start = 0
    while start < len(order):
        rows = max(1, budget // (lengths[order[start]] + 1))
        yield order[start : start + rows]
        start += rows


def batches(lengths: Sequence[int], budget: int) -> Iterator[tuple[list[int], int]]:
    """Rows in batches of like length, and how many they are."""
    return ((rows, len(rows)) for rows in by_length(lengths, budget))


def slot_groups(lengths: Sequence[int], budget: int) -> Iterator[tuple[list[int], int]]:
    """Rows that share the slots of a batch, longest first, and how many slots; empty rows are left out.

    Those less than half as long as the longest are a group of their own, where they are enough to fill its slots.
    """
    order = sorted((n for n in range(len(lengths)) if lengths[n]), key=lambda n: -lengths[n])
    while order:
        longest = lengths[order[0]]
        room = max(1, budget // (longest + 1))
        short = sum(2 * lengths[n] < longest for n in order)
        count = len(order) - (short if short >= room else 0)
        group, order = order[:count], order[count:]
        yield group, min(room, count)


def each_batch(batches: Iterable[Any], compute: Callable[[Any], None], said: str = LESS) -> None:
    """`compute` of every batch of rows; once memory has run out, of each half of that one and of all that follow.

    It is called anew for rows of which it computed a part: it adds nothing up before all is done.
    """
    halved = False
    for rows in batches:
        if not halved and _fits(compute, rows):
            continue
        if not halved:  # not inside `except`, which would hold what was computed
            halved = True
            torch.cuda.empty_cache()
            say_once(said)
        half = -(-len(rows) // 2)
        for part in (rows[:half], rows[half:]):
            if len(part):
                compute(part)


def _fits(compute: Callable[[Any], None], rows: Any) -> bool:
    try:
        compute(rows)
    except torch.OutOfMemoryError:
        if len(rows) == 1:
            raise
        return False
    return True
