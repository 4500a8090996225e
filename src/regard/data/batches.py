"""Batches by a budget of padded tokens: rows of like length together, in an order of (seed, epoch) alone.

Works on lengths only: knows no files, no ids and no ranks.
"""

from collections.abc import Sequence

import numpy as np

POOL_ROWS = 200_000  # rows sorted together: all of a small corpus, a random part of a large one


def token_budget_batches(
    source_lengths: np.ndarray | None,
    target_lengths: np.ndarray,
    budget: int,
    seed: int,
    epoch: int,
    pool: int = POOL_ROWS,
) -> list[np.ndarray]:
    """Arrays of row indices, every row in exactly one: the micro-batches of the epoch in their global order.

    Rows × longest target stays within `budget`, rows × longest source within twice that; lengths include the
    end-of-sentence token where the caller adds one. A row past the budget is a batch of its own.
    """
    if budget < 1:
        raise ValueError("the budget must be at least 1 token")
    target = np.maximum(np.asarray(target_lengths, dtype=np.int64), 1)
    source = target if source_lengths is None else np.maximum(np.asarray(source_lengths, dtype=np.int64), 1)
    if len(source) != len(target):
        raise ValueError(f"{len(source)} source lengths, {len(target)} target lengths")
    random = np.random.default_rng([seed, epoch])
    shuffled = random.permutation(len(target))
    batches: list[np.ndarray] = []
    for rows in np.array_split(shuffled, max(1, -(-len(shuffled) // pool))):
        rows = rows[_order(source[rows], target[rows], random)]
        ends = _batch_ends(source[rows], target[rows], budget, first=int(budget * random.uniform(0.5, 1)))
        batches += np.split(rows, ends[:-1]) if ends else []
    return [batches[i] for i in random.permutation(len(batches))]


def _order(source: np.ndarray, target: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """By target length, then by source length, rising and falling in turns.

    In turns, because a batch that holds the end of one target length and the beginning of the next then finds
    like sources on both sides. The source is blurred, so that a row meets others in every epoch.
    """
    blurred = source + random.uniform(-1.5, 1.5, len(source))
    rising = (target + random.integers(2)) % 2 == 0
    return np.lexsort((np.where(rising, blurred, -blurred), target))


def _batch_ends(source: np.ndarray, target: np.ndarray, budget: int, first: int) -> list[int]:
    """Where each batch ends when rows are taken in order as long as they fit.

    The first batch gets `first` tokens only, so that the cuts fall elsewhere in every epoch.
    """
    ends: list[int] = []
    start, room = 0, first
    while start < len(target):
        window = slice(start, start + max(1, room // int(target[start])))  # targets rise: no more can fit
        count = np.arange(1, len(target[window]) + 1)
        fits = (count * target[window] <= room) & (count * np.maximum.accumulate(source[window]) <= 2 * room)
        start += max(1, int(fits.sum()))  # both products rise, so the rows that fit come first
        ends.append(start)
        room = budget
    return ends


def padding_efficiency(batches: Sequence[np.ndarray], *lengths: np.ndarray) -> float:
    """The share of real among padded tokens, of all these columns together: 1.0 means no padding."""
    picked = [column[rows] for column in lengths for rows in batches]
    return float(sum(p.sum() for p in picked) / sum(len(p) * p.max() for p in picked))
