"""The alignment loss by hand, and that attention learns what it is taught."""

import math

import numpy as np
import pytest
import torch

from regard.errors import RegardError
from regard.nn.record import Record, Sink
from regard.tasks.guide import Guide, links_of


def test_links_of_words_become_links_of_pieces() -> None:
    """Source word 1 has pieces 1 and 2; target word 0 has pieces 0 and 1."""
    made = links_of(4, np.array([[1, 0], [0, 1]]), np.array([0, 1, 1]), np.array([0, 0, 1]))
    assert made.tolist() == [[4, 0, 1], [4, 0, 2], [4, 1, 1], [4, 1, 2], [4, 2, 0]]
    assert links_of(0, np.zeros((0, 2), dtype=int), np.array([0]), np.array([0])).shape == (0, 3)


def test_loss_by_hand() -> None:
    """Two heads whose mean is taught; place (0, 0) has two links, place (1, 1) one."""
    heads = torch.tensor([[[[0.5, 0.5], [1.0, 0.0]]], [[[0.25, 0.75], [0.4, 0.6]]]])  # [B, 1, T, S]
    weights = torch.cat([heads, heads.flip(-1)], 1)  # [B, 2, T, S]; the mean of both heads is a half everywhere
    record = Record(places=("cross",))
    record.sinks["cross", 0] = Sink(True, [weights])
    links = torch.tensor([[0, 0, 0], [0, 0, 1], [1, 1, 1]])
    assert Guide().loss(record, links).item() == pytest.approx(-2 * math.log(0.5))
    one = Guide(heads=[1]).loss(record, links).item()
    assert one == pytest.approx(-(math.log(0.5) / 2 + math.log(0.5) / 2 + math.log(0.6)))
    with pytest.raises(RegardError, match="no layer 2"):
        Guide(layer=2).loss(record, links)


@pytest.mark.parametrize("keys", [{"weight": 0.0}, {"layer": 0}, {"heads": [0]}])
def test_impossible_guides_are_refused(keys: dict) -> None:
    with pytest.raises(ValueError, match="must be above 0|counted from 1"):
        Guide(**keys)
