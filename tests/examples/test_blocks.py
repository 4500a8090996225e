"""Running text in rows: every row of a batch goes on where it stopped, and an epoch has all the text once."""

from types import SimpleNamespace
from typing import Any

import numpy as np

from regard.examples.blocks import CorpusTokens, contiguous_view


def stream(length: int, *weights: float) -> CorpusTokens:
    """Two corpora, of 100 and 53 tokens, which are numbered through."""
    column = SimpleNamespace(flat=np.arange(153), offsets=np.array([0, 40, 100, 153]))
    prepared: Any = SimpleNamespace(
        columns={"text": column}, weights=list(weights), corpus=np.array([0, 0, 1]), number=np.arange(3)
    )
    return CorpusTokens(prepared, length)


def test_rows_go_on_where_they_stopped() -> None:
    view = contiguous_view(stream(4, 1.0, 0.0), budget=12, seed=1, epoch=0)
    batches = [view.collate(indices) for indices in view.plan(12, 1, 0)]
    assert {tuple(batch.ids.shape) for batch in batches} == {(3, 4)}
    rows = np.concatenate([batch.ids.numpy() for batch in batches], 1)  # [3, T·batches]
    assert (np.diff(rows, axis=1) == 1).all()
    assert all((batch.labels.view(3, 4) == batch.ids + 1).all() for batch in batches)
    assert len(set(rows.ravel().tolist())) == rows.size >= 84  # of a hundred: no token twice, the ends aside
    assert rows.max() < 100  # what weighs nothing is not learned from
    begun = {int(contiguous_view(stream(4, 1.0, 0.0), 12, 1, epoch).block_starts[0]) for epoch in range(20)}
    assert begun == {0, 1, 2, 3}


def test_a_corpus_that_weighs_twice_runs_through_twice() -> None:
    view = contiguous_view(stream(4, 2.0, 1.0), budget=4, seed=2, epoch=0)
    gaps = np.diff(view.block_starts)
    assert (gaps != 4).sum() == 2  # where the first corpus begins again, and where the second begins
