"""Batches for inference: where memory runs out, what is left is computed in halves."""

import pytest
import torch

from regard.examples.batching import LESS, LESS_TOKENS, by_length, each_batch
from regard.reporting import say_once


@pytest.fixture(autouse=True)
def _unsaid() -> None:
    say_once.cache_clear()


def test_batches_are_halved_once(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[list[int]] = []

    def compute(rows: list[int]) -> None:
        if len(rows) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        done.append(rows)

    each_batch([[0, 1], [2, 3, 4, 5, 6, 7, 8], [9, 10, 11], [12]], compute, LESS_TOKENS)
    assert done == [[0, 1], [2, 3, 4, 5], [6, 7, 8], [9, 10], [11], [12]]
    assert capsys.readouterr().err == f"regard: {LESS_TOKENS}\n"
    with pytest.raises(torch.OutOfMemoryError):  # halves are too much as well
        each_batch([list(range(16))], compute)


def test_a_row_that_never_fits() -> None:
    def compute(rows: list[int]) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    with pytest.raises(torch.OutOfMemoryError):
        each_batch([[0]], compute)


def test_nothing_is_said_where_memory_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    done: list[int] = []
    each_batch(by_length([3, 1, 0, 2], 5), done.extend, LESS)
    assert sorted(done) == [0, 1, 3]
    assert capsys.readouterr().err == ""
