"""Counting and normalised counting, by hand, padded and packed."""

import pytest
import torch

from regard.nn.layout import Layout, SequenceSpans
from regard.nn.position import CountingConfig, NormalisedCountingConfig
from regard.nn.sizes import Sizes

REAL = torch.tensor([[True, True, True, True], [True, True, False, False]])


def test_by_hand() -> None:
    x, layout = torch.full((2, 4, 2), 0.5), Layout.of(4, REAL)
    counted = CountingConfig().build(Sizes.of(2, 1)).embed(x, layout)
    assert counted[..., 0].tolist() == counted[..., 1].tolist() == [[1.5, 2.5, 3.5, 4.5]] * 2
    normalised = NormalisedCountingConfig().build(Sizes.of(2, 1)).embed(x, layout)
    assert normalised[0, :, 0].tolist() == [0.75, 1.0, 1.25, 1.5]
    assert normalised[1, :2, 1].tolist() == [1.0, 1.5]


def test_rows_of_a_cache_count_on() -> None:
    x, layout = torch.zeros(2, 1, 2), Layout(torch.tensor([[3], [7]]), 8)
    assert CountingConfig().build(Sizes.of(2, 1)).embed(x, layout)[:, 0, 0].tolist() == [4, 8]


@pytest.mark.parametrize("packed", ["spans", "document"])
def test_sequences_end_to_end_have_their_own_lengths(packed: str) -> None:
    start, length = torch.tensor([0, 3, 0], dtype=torch.int32), torch.tensor([3, 2, 0], dtype=torch.int32)
    sides = {
        "spans": {"spans": SequenceSpans(start, length, torch.tensor([2], dtype=torch.int32), 3)},
        "document": {"document": torch.tensor([[0, 0, 0, 1, 1]])},
    }
    layout = Layout(torch.tensor([[0, 1, 2, 0, 1]]), 3, **sides[packed])
    out = NormalisedCountingConfig().build(Sizes.of(2, 1)).embed(torch.zeros(1, 5, 2), layout)
    assert torch.allclose(out[0, :, 0], torch.tensor([1 / 3, 2 / 3, 1, 0.5, 1]))
