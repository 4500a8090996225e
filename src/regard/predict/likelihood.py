"""Log-likelihoods of tokens under a language model, in windows, or block by block with a memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.examples.windows import StridedWindows, TokenWindow
from regard.models.batch import RaggedRows, TextBatch

if TYPE_CHECKING:
    from regard.models.lm import LanguageModel
    from regard.models.lstm import LstmLanguageModel

LOGITS = {"cpu": 1 << 25, "cuda": 1 << 28}  # logits in memory at once when texts are scored
Rows = Sequence[Sequence[int] | np.ndarray]


@torch.inference_mode()
def negative_log_likelihoods(
    model: nn.Module,
    rows: Rows,
    window: StridedWindows,
    ignored: int | None = None,
    report: Callable[[int], None] | None = None,
) -> list[tuple[float, int]]:
    """For each row the sum over its tokens but the first, and how many they are; the `ignored` one does not count.

    Every token counts once, in windows that may overlap. `report` receives the number of tokens that are done.
    """
    weight = next(model.parameters())
    entries = len(cast("LanguageModel | LstmLanguageModel", model).output.weight)
    budget = max(window.context, LOGITS.get(weight.device.type, 1 << 25) // entries)
    totals, counts, done = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64), 0
    was_training = model.training
    model.eval()
    scored = _segment_logits if window.memory else _window_logits
    for logits, labels, owners in scored(model, rows, window, ignored, budget, weight.device):
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        nll = F.cross_entropy(logits, labels.to(weight.device), reduction="none")
        np.add.at(totals, owners, nll.double().cpu().numpy())
        np.add.at(counts, owners, 1)
        done += len(owners)
        if report:
            report(done)
    model.train(was_training)
    return list(zip(totals.tolist(), counts.tolist(), strict=True))


Scored = Iterator[tuple[Tensor, Tensor, np.ndarray]]  # logits [N, V], labels [N], and the row that each belongs to


def _window_logits(
    model: nn.Module, rows: Rows, window: StridedWindows, ignored: int | None, budget: int, device: torch.device
) -> Scored:
    """Each window by itself, as many at once as the budget has room for."""
    windows = [w for n, row in enumerate(rows) for w in window.windows(n, len(row))]
    windows.sort(key=lambda w: w.begin - w.end)  # like lengths together: only the last batch of each has padding
    while windows:
        count = max(1, budget // (windows[0].end - windows[0].begin))
        batch, labels, owners = _windows_batch(windows[:count], rows, ignored)
        windows = windows[count:]
        if len(owners):
            yield model(batch.to(device)), labels, owners


def _segment_logits(
    model: nn.Module, rows: Rows, window: StridedWindows, ignored: int | None, budget: int, device: torch.device
) -> Scored:
    """The windows of a row in their order, each with the memory of those before; several rows side by side."""
    windows = [list(window.windows(n, len(row))) for n, row in enumerate(rows)]
    windows.sort(key=len, reverse=True)  # rows that end are the last of a batch, and leave it
    count = max(1, budget // window.context)
    for first in range(0, len(windows), count):
        some = windows[first : first + count]
        carry = cast("LanguageModel", model).empty_carry(len(some), window.memory)
        for step in range(len(some[0])):
            left = [row[step] for row in some if step < len(row)]
            batch, labels, owners = _windows_batch(left, rows, ignored)
            carry = {name: value[: len(left)] for name, value in carry.items()}
            logits, carry = model(batch.to(device), carry=carry)
            yield logits, labels, owners


def _windows_batch(
    windows: Sequence[TokenWindow], rows: Rows, ignored: int | None
) -> tuple[TextBatch, Tensor, np.ndarray]:
    """The windows as a batch, its labels, and the row that each of them belongs to."""
    ids, real = RaggedRows.of([rows[w.row][w.begin : w.end] for w in windows]).padded(0)
    targets = RaggedRows.of([rows[w.row][w.begin + 1 : w.end + 1] for w in windows]).padded(0)[0]
    counts = real & (np.arange(ids.shape[1]) >= np.array([w.skip for w in windows])[:, None])
    if ignored is not None:
        counts &= targets != ignored
    owners, labels = np.repeat([w.row for w in windows], counts.sum(1)), torch.from_numpy(targets[counts])
    positions = torch.from_numpy(np.flatnonzero(counts))
    padding = None if real.all() else torch.from_numpy(real)
    return TextBatch(torch.from_numpy(ids), padding, labels=labels, label_positions=positions), labels, owners
