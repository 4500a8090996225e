"""Alignments from weights, worked by hand."""

import pytest
import torch

from regard.errors import RegardError
from regard.predict.pairs import align, select_heads, to_pharaoh


def test_a_target_word_goes_where_its_pieces_looked_together() -> None:
    weights = torch.tensor(
        [
            [0.4, 0.3, 0.3, 0.0],  # "Haus": one piece; the two pieces of source word 1 together outweigh word 0
            [0.9, 0.0, 0.0, 0.1],  # "tür": first piece of the second word
            [0.0, 0.3, 0.3, 0.4],
            [0.0, 0.0, 0.0, 1.0],  # the end, which is no word
        ]
    )
    links = align(weights, [0, 1, 1], [0, 1, 1])  # the source's end is no word either
    assert links == [(1, 0), (0, 1)]
    assert to_pharaoh(links) == "1-0 0-1"


def test_nothing_aligns_with_nothing() -> None:
    assert align(torch.ones(1, 1), [], []) == []
    assert to_pharaoh([]) == ""


def test_special_pieces_are_no_words() -> None:
    assert align(torch.tensor([[0.9, 0.1], [0.2, 0.8]]), [-1, 0], [0, -1]) == [(0, 0)]


def test_layers_and_heads_are_chosen_and_checked() -> None:
    cross = torch.arange(3 * 2 * 1 * 2, dtype=torch.float64).view(3, 2, 1, 2)
    assert torch.equal(select_heads(cross, None, None), cross[1].mean(0))  # the layer before the last, all heads
    assert torch.equal(select_heads(cross[:1], None, None), cross[0].mean(0))
    assert torch.equal(select_heads(cross, 3, [2]), cross[2, 1])
    with pytest.raises(RegardError, match=r"no layer 4 .* 1 to 3"):
        select_heads(cross, 4, None)
    with pytest.raises(RegardError, match="no head 3; the layer has heads 1 to 2"):
        select_heads(cross, None, [1, 3])
