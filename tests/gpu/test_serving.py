"""Texts that join a running batch on a GPU (continuous batching) are translated as those of a batch are."""

from pathlib import Path

import pytest
import torch

import regard
from regard.decoding import Beam, Greedy
from regard.predict.continuous import ContinuousTranslator

DEVICE = "cuda"
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
TEXTS = [" ".join(f"w{(n * k) % 20}" for k in range(1, 2 + n % 7)) for n in range(24)]


@pytest.mark.parametrize("config", [Greedy(), Beam(size=4)], ids=str)
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_texts_that_join_later(toy_run: Path, config: Greedy | Beam, precision: str) -> None:
    """Some come while others are being said, and one leaves; a place is used by several, one after the other."""
    made = regard.load(toy_run, DEVICE, precision)
    expected = made.translate(TEXTS, config)
    running, found, waiting = ContinuousTranslator(made, 6), dict[int, str](), list(range(len(TEXTS)))
    steps = 0
    while running.busy or waiting:
        now, waiting = waiting[:5], waiting[5:]
        assert not running.add(now, [TEXTS[n] for n in now], config)
        if 3 in now:
            running.drop({3})
        found |= {key: each[0].text for key, each in running.step()}
        steps += 1
        assert steps < 2000
    assert sorted(found) == [n for n in range(len(TEXTS)) if n != 3]
    same = sum(found[n] == expected[n] for n in found)
    most = 0.9 if precision == "float32" else 0.7  # batches of other sizes round otherwise
    assert same >= most * len(found), f"{same} of {len(found)}"
