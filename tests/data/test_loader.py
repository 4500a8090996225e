import threading
import time
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.loader import Loader, StepBatches, parts_per_batch, rank_batches
from regard.errors import RegardError


class Rows:
    """An epoch of `n` batches, each of one row that says which it is."""

    def __init__(self, epoch: int, n: int) -> None:
        self.epoch = epoch
        self.batches = [np.array([i]) for i in range(n)]

    def collate(self, indices: np.ndarray) -> Any:
        return self.epoch, int(indices[0])

    def targets(self, indices: np.ndarray) -> int:
        return int(indices.sum())


def take(count: int, n: int, **options: Any) -> list[StepBatches]:
    with Loader(lambda epoch: Rows(epoch, n), **options) as loader:
        return list(islice(loader, count))


def test_the_last_group_of_an_epoch_is_short():
    steps = take(4, n=5, accumulate=2)
    assert [step.batches for step in steps] == [[(0, 0), (0, 1)], [(0, 2), (0, 3)], [(0, 4)], [(1, 0), (1, 1)]]
    assert [(s.epoch, s.step) for s in steps] == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert [s.resume_at for s in steps] == [(0, 1), (0, 2), (1, 0), (1, 1)]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 20), st.integers(1, 4))
def test_resumes_from_any_step(n: int, group: int, done: int, ahead: int):
    whole = take(done + 6, n, accumulate=group, prefetch=ahead)
    start = whole[done - 1].resume_at if done else (0, 0)
    assert take(6, n, accumulate=group, start=start, prefetch=ahead) == whole[done:]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 5))
def test_ranks_share_the_global_sequence(n: int, group: int, world: int):
    alone = take(5, n, accumulate=group)
    ranks = [take(5, n, accumulate=group, rank=r, world_size=world) for r in range(world)]
    for i, step in enumerate(alone):
        mine = [ranks[r][i] for r in range(world)]
        counted = [batch for s in mine for batch in s.batches[: len(s.batches) - s.dummies]]
        assert sorted(counted) == step.batches
        assert {len(s.batches) for s in mine} == {len(mine[0].batches)}  # they meet in each
        assert {(s.epoch, s.step, s.resume_at, s.targets) for s in mine} == {
            (step.epoch, step.step, step.resume_at, step.targets)
        }


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 4), st.integers(1, 9))
def test_a_step_has_the_same_examples_in_any_world(sizes: list[int], absent: int, world: int):
    """`sizes` are the rows of its micro-batches; `absent` so many are missing at the end of an epoch."""
    ends = np.cumsum(sizes)
    batches = [np.arange(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    parts = parts_per_batch(len(sizes) + absent, world)
    shares = [rank_batches(batches, rank, world, parts) for rank in range(world)]
    counted = [piece for pieces, idle in shares for piece in pieces[: len(pieces) - idle]]
    assert sorted(np.concatenate(counted)) == list(range(ends[-1]))
    assert {len(pieces) for pieces, _ in shares} == {-(-len(sizes) * parts // world)}
    assert all(len(piece) for pieces, _ in shares for piece in pieces)
    assert all(len(piece) == 1 for pieces, idle in shares for piece in pieces[len(pieces) - idle :])
    for piece in counted:  # of one micro-batch, and an even part of it: as long rows, and as many
        (whole,) = [batch for batch in batches if piece[0] in batch]
        assert set(piece) <= set(whole)
        assert len(piece) in (len(whole) // parts, -(-len(whole) // parts))


@pytest.mark.parametrize("group, world, parts", [(1, 1, 1), (1, 4, 4), (4, 2, 1), (3, 2, 2), (4, 6, 3), (8, 64, 8)])
def test_micro_batches_are_cut_no_more_than_needed(group: int, world: int, parts: int):
    assert parts_per_batch(group, world) == parts


def test_a_finished_epoch_resumes_in_the_next():
    assert take(1, 4, accumulate=2, start=(3, 2))[0].batches == [(4, 0), (4, 1)]


def test_exceptions_reach_the_caller():
    def make(epoch: int) -> Rows:
        if epoch == 1:
            raise RegardError("the second epoch fails")
        return Rows(epoch, 2)

    with Loader(make) as loader:
        assert len(list(islice(loader, 2))) == 2
        with pytest.raises(RegardError, match="second epoch fails"):
            next(loader)
        assert list(loader) == []


def test_an_epoch_without_batches_is_an_error():
    with Loader(lambda epoch: Rows(epoch, 0)) as loader, pytest.raises(RegardError, match="epoch 0 has no batch"):
        next(loader)


def test_threads_end_on_close_even_when_the_queue_is_full():
    before = threading.active_count()
    loader = Loader(lambda epoch: Rows(epoch, 1000), prefetch=2)
    next(loader)
    time.sleep(0.05)
    loader.close()
    loader.close()
    assert threading.active_count() == before


def test_the_next_epoch_is_planned_before_it_is_needed():
    planned = threading.Event()

    def make(epoch: int) -> Rows:
        if epoch == 1:
            planned.set()
        return Rows(epoch, 100)

    with Loader(make, prefetch=1) as loader:
        for _ in range(60):
            next(loader)
        assert planned.wait(5)


@pytest.mark.parametrize("options", [{"accumulate": 0}, {"rank": 2, "world_size": 2}, {"start": (0, -1)}])
def test_impossible_arguments(options: dict[str, Any]):
    with pytest.raises(ValueError, match="at least 1"):
        Loader(lambda epoch: Rows(epoch, 1), **options)
