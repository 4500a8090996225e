"""The table that positions add to the scores, against a loop, with its gradients."""

from itertools import product

import numpy as np
import pytest
import torch

from regard.nn.layout import AttentionContext, Layout
from regard.nn.position import Bias


@pytest.mark.parametrize("rows, heads, queries, own_columns", list(product([1, 2], [1, 3], [1, 4], [False, True])))
def test_dense_is_the_table_at_each_column(rows: int, heads: int, queries: int, own_columns: bool) -> None:
    g = np.random.default_rng(0)
    table, columns = g.normal(size=(rows, heads, queries, 6)), g.integers(0, 6, (2, 4, 5))
    if not own_columns:
        columns[1] = columns[0]
    which = torch.tensor(columns)
    bias = Bias(torch.tensor(table), lambda b, i, j: which[b, i, j] if own_columns else which[0][i, j])
    dense = bias.dense(AttentionContext(Layout.of(4, torch.ones(2, 4, dtype=torch.bool)), Layout.of(5)))
    ours = np.broadcast_to(dense.numpy(), (2, 3, 4, 5))
    for b, h, i, j in np.ndindex(2, 3, 4, 5):
        where = (min(b, rows - 1), min(h, heads - 1), min(i, queries - 1), columns[b, i, j])
        assert ours[b, h, i, j] == table[where]


@pytest.mark.parametrize("shape", [(1, 2, 1, 5), (2, 2, 3, 5), (2, 1, 1, 5)])
def test_gradients_of_the_table(shape: tuple[int, ...]) -> None:
    context = AttentionContext(Layout(torch.tensor([[0, 1, 2], [4, 5, 6]]), 7), Layout.of(7))
    table = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: Bias.by_distance(t, context).dense(context), table)


def test_far_places_use_the_outer_columns() -> None:
    """Distances −2 … 2 of a table of five; rows of a cache stand at positions of their own."""
    context = AttentionContext(Layout(torch.tensor([[1], [6]]), 7), Layout.of(7))
    bias = Bias.by_distance(torch.arange(5.0).view(1, 1, 1, 5), context)
    assert bias.dense(context)[:, 0, 0].tolist() == [[1, 2, 3, 4, 4, 4, 4], [0, 0, 0, 0, 0, 1, 2]]
