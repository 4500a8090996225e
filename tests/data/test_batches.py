import os
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.batches import padding_efficiency, token_budget_batches
from regard.data.readers import read_lines

LENGTHS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=200)


@given(LENGTHS, st.integers(1, 300), st.integers(0, 2**32), st.integers(0, 50), st.integers(1, 100))
def test_every_row_once_within_budget_and_a_pure_function(
    rows: list[tuple[int, int]], budget: int, seed: int, epoch: int, pool: int
):
    source, target = np.array(rows).T
    batches = token_budget_batches(source, target, budget, seed, epoch, pool)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(rows)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(1, target[batch].max()) <= budget
        assert len(batch) == 1 or len(batch) * max(1, source[batch].max()) <= 2 * budget
    again = token_budget_batches(source.copy(), target.copy(), budget, seed, epoch, pool)
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=100), st.integers(1, 100))
def test_one_column(lengths: list[int], budget: int):
    batches = token_budget_batches(None, np.array(lengths), budget, 0, 0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert all(len(b) == 1 or len(b) * max(lengths[i] for i in b) <= budget for b in batches)


def corpus(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    source = rng.lognormal(2.6, 0.4, n).astype(int) + 2
    return source, np.maximum(2, (source * rng.lognormal(0, 0.2, n)).astype(int))


def test_a_row_past_the_budget_is_a_batch_of_its_own():
    batches = token_budget_batches(np.array([3, 3, 3]), np.array([3, 50, 3]), 10, 0, 0)
    assert sorted(map(sorted, batches)) == [[0, 2], [1]]


def test_no_rows_no_batches():
    assert token_budget_batches(None, np.zeros(0, dtype=int), 10, 0, 0) == []


def test_epochs_and_seeds_differ_in_order_and_in_company():
    source, target = corpus(20_000)
    first, second, other = (
        token_budget_batches(source, target, 2048, 1, 0),
        token_budget_batches(source, target, 2048, 1, 1),
        token_budget_batches(source, target, 2048, 2, 0),
    )
    company = {frozenset(b.tolist()) for b in first}
    assert sum(frozenset(b.tolist()) in company for b in second) < 0.05 * len(second)
    assert sum(frozenset(b.tolist()) in company for b in other) < 0.05 * len(other)


def test_lengths_are_shuffled_over_the_epoch():
    source, target = corpus(20_000)
    means = [target[b].mean() for b in token_budget_batches(source, target, 1024, 3, 0)]
    assert abs(np.corrcoef(np.arange(len(means)), means)[0, 1]) < 0.2
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.2


def test_small_pools_still_fill():
    source, target = corpus(30_000)
    assert padding_efficiency(token_budget_batches(source, target, 2048, 0, 0, pool=5_000), target) > 0.95


def test_fill_by_hand():
    batches, source, target = [np.array([0, 1]), np.array([2])], np.array([1, 3, 5]), np.array([2, 2, 4])
    assert (
        padding_efficiency(batches, source),
        padding_efficiency(batches, target),
        padding_efficiency(batches, source, target),
    ) == (9 / 11, 1.0, 17 / 19)
    assert padding_efficiency([np.array([0, 1])], np.array([1, 2])) == 0.75


def test_two_million_rows_in_seconds():
    source, target = corpus(2_000_000)
    start = time.process_time()  # whatever else the machine is doing
    batches = token_budget_batches(source, target, 4096, 0, 0)
    assert time.process_time() - start < 20  # a loop over rows would take a minute
    assert sum(map(len, batches)) == 2_000_000


def test_multi30k_fill():
    folder = Path(os.environ.get("REGARD_DATA", "")) / "multi30k"
    if "REGARD_DATA" not in os.environ or not folder.is_dir():
        pytest.skip("REGARD_DATA does not hold multi30k")
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    sides = [list(read_lines(folder / f"train.{side}.gz")) for side in ("en", "de")]
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = pre_tokenizers.Whitespace()
    bpe.train_from_iterator(
        sides[0] + sides[1], trainers.BpeTrainer(vocab_size=10_000, special_tokens=["<unk>"], show_progress=False)
    )
    source, target = (np.array([len(e.ids) + 1 for e in bpe.encode_batch(side)]) for side in sides)
    for epoch in range(3):
        batches = token_budget_batches(source, target, 4096, 1, epoch)
        assert padding_efficiency(batches, target) >= 0.97
        assert padding_efficiency(batches, source, target) >= 0.85
