"""ALiBi against a table made by hand and Bloom's slopes."""

import pytest
import torch
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from regard.nn.layout import AttentionContext, Layout
from regard.nn.position import AlibiConfig
from regard.nn.position.alibi import slopes
from regard.nn.sizes import Sizes


def test_slopes_of_the_paper() -> None:
    assert slopes(8).tolist() == [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    assert slopes(1).tolist() == [1 / 256]
    root = 2**-0.5  # sixteen heads begin at 2^(−1/2); six have the four slopes of four and two from those of eight
    torch.testing.assert_close(slopes(16)[:3], torch.tensor([root, 0.5, root / 2], dtype=torch.float64))
    assert slopes(6).tolist() == [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8]


@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5, 7, 8, 12, 16, 20])
def test_slopes_are_blooms(heads: int) -> None:
    theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float64)[:, 0, 1]  # the slope is what place 1 gets
    torch.testing.assert_close(slopes(heads), theirs, atol=1e-7, rtol=1e-6)


def test_table_by_hand() -> None:
    position = AlibiConfig().build(Sizes.of(4, 2))  # slopes 1/16 and 1/256
    q = torch.zeros(1, 2, 3, 2, dtype=torch.float64)
    context = AttentionContext(Layout.of(3), Layout.of(3))
    dense = position.bias(q, context).dense(context)
    away = torch.tensor([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]], dtype=torch.float64)
    assert torch.equal(dense, torch.stack([-away / 16, -away / 256])[None])


def test_rows_of_a_cache_stand_at_their_own_positions() -> None:
    position = AlibiConfig().build(Sizes.of(4, 1))  # slope 1/256
    context = AttentionContext(Layout(torch.tensor([[2], [300]]), 301), Layout.of(301))
    dense = position.bias(torch.zeros(2, 1, 1, 4), context).dense(context)
    away = (torch.arange(301)[None] - torch.tensor([[2], [300]])).abs()
    assert torch.equal(dense[:, 0, 0], -away / 256)
