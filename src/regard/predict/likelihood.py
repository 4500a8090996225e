"""How likely a language model finds given text: every token once, in windows that may overlap."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from regard.examples.windows import SlidingWindow, TokenWindow
from regard.models.batch import Packed
from regard.models.texts import Texts

SCORES = {"cpu": 1 << 25, "cuda": 1 << 28}  # scores of words that exist at once


@torch.inference_mode()
def negative_log_likelihoods(
    model: nn.Module,
    rows: Sequence[Sequence[int] | np.ndarray],
    window: SlidingWindow,
    never: int | None = None,
    told: Callable[[int], None] | None = None,
) -> list[tuple[float, int]]:
    """For each row the sum over its tokens but the first, and how many they are; what is `never` said does not count.

    `told` is given the number of tokens that are done.
    """
    weight = next(model.parameters())
    windows = [w for n, row in enumerate(rows) for w in window.windows(n, len(row))]
    windows.sort(key=lambda w: w.begin - w.end)  # like lengths together: only the last batch of each has padding
    entries = len(cast(Any, model).output.weight)
    budget = max(window.context, SCORES.get(weight.device.type, 1 << 25) // entries)
    totals, counts, done = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64), 0
    was_training = model.training
    model.eval()
    start = 0
    while start < len(windows):
        length = windows[start].end - windows[start].begin
        taken = windows[start : start + max(1, budget // length)]
        batch, owners = _batch(taken, rows, never)
        if len(owners):
            logits = model(batch.to(weight.device))
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            nll = F.cross_entropy(logits, batch.labels.to(weight.device), reduction="none")  # type: ignore[union-attr]
            np.add.at(totals, owners, nll.double().cpu().numpy())
            np.add.at(counts, owners, 1)
        start, done = start + len(taken), done + len(owners)
        if told:
            told(done)
    model.train(was_training)
    return list(zip(totals.tolist(), counts.tolist(), strict=True))


def _batch(
    windows: Sequence[TokenWindow], rows: Sequence[Sequence[int] | np.ndarray], never: int | None
) -> tuple[Texts, np.ndarray]:
    """The windows as a batch, and the row that each of its labels belongs to."""
    ids, real = Packed.of([rows[w.row][w.begin : w.end] for w in windows]).padded(0)
    said = Packed.of([rows[w.row][w.begin + 1 : w.end + 1] for w in windows]).padded(0)[0]
    counts = real & (np.arange(ids.shape[1]) >= np.array([w.skip for w in windows])[:, None])
    if never is not None:
        counts &= said != never
    owners = np.repeat([w.row for w in windows], counts.sum(1))
    return Texts(
        torch.from_numpy(ids),
        None if real.all() else torch.from_numpy(real),
        labels=torch.from_numpy(said[counts]),
        places=torch.from_numpy(np.flatnonzero(counts)),
    ), owners
