"""Intervals against tables, and verdicts at the edges."""

import math

import pytest

from regard.lab.statistics import bootstrap_interval, mean_interval, paired_interval, side, t_quantile


@pytest.mark.parametrize(
    "freedom, value",  # of any table of Student's t, 97.5%
    [(1, 12.7062), (2, 4.3027), (4, 2.7764), (5, 2.5706), (9, 2.2622), (30, 2.0423)],
)
def test_quantiles_are_those_of_the_tables(freedom: int, value: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(value, abs=5e-5)


def test_an_interval_worked_by_hand() -> None:
    found = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.77645 * math.sqrt(2.5) / math.sqrt(5)
    assert (found.mean, found.low, found.high) == pytest.approx((3, 3 - half, 3 + half), abs=1e-4)
    assert found.bootstrap is not None
    assert found.low < found.bootstrap[0] < 3 < found.bootstrap[1] < found.high


def test_pairs_take_away_what_seeds_share() -> None:
    base = [10.0, 20.0, 30.0, 40.0]
    other = [x + d for x, d in zip(base, [1.0, 1.1, 0.9, 1.0], strict=True)]
    assert paired_interval(base, other).low > 0.8
    apart = mean_interval(other).low < mean_interval(base).high
    assert apart  # unpaired, the two could not be told apart


def test_one_value_says_nothing() -> None:
    alone = mean_interval([1.0])
    assert (alone.low, alone.high) == (-math.inf, math.inf)
    assert side(alone, 0, 2) == "undecided"
    assert mean_interval([1.0, math.nan]).high == math.inf


def test_the_bootstrap_is_the_same_every_time() -> None:
    assert bootstrap_interval([1.0, 4.0, 2.0], 0.95) == bootstrap_interval([1.0, 4.0, 2.0], 0.95)


def test_sides() -> None:
    inside = mean_interval([1.0, 1.01, 0.99, 1.0])
    assert side(inside, 0.9, 1.1) == "inside"
    assert side(inside, 1.1, 2) == "outside"
    assert side(inside, 1.0, 2) == "undecided"
    assert side(mean_interval([0.0, 0.0]), 0, 0) == "inside"
