"""IBM model 1 against an EM worked by hand."""

import numpy as np
import pytest

from regard.examples import lexicon
from regard.examples.lexicon import Lexicon

A, B, NULL, X, Y = 0, 1, 4, 0, 1  # of 4 source pieces and 3 target pieces


def made(iterations: int) -> tuple[Lexicon, dict[tuple[int, int], float]]:
    """a b → x y, a → x"""
    pairs = Lexicon([np.array([A, B]), np.array([A])], [np.array([X, Y]), np.array([X])], (4, 3))
    pairs.learn(iterations)
    return pairs, {(int(s), int(t)): float(p) for s, t, p in zip(pairs.s, pairs.t, pairs.p, strict=True)}


def test_two_iterations_by_hand() -> None:
    """At first a gets ⅓ of x and y in the first pair, and half of x in the second; so does NULL."""
    _, first = made(1)
    assert first == pytest.approx({(A, X): 5 / 7, (A, Y): 2 / 7, (B, X): 1 / 2, (B, Y): 1 / 2,
                                   (NULL, X): 5 / 7, (NULL, Y): 2 / 7})  # fmt: skip
    _, second = made(2)
    assert second[B, Y] == pytest.approx(9 / 14)  # (7/15) / (7/27 + 7/15)
    assert second[A, X] == pytest.approx(235 / 307)  # (10/27 + 1/2) / (10/27 + 1/2 + 4/15)


def test_candidates() -> None:
    pairs, _ = made(5)
    assert pairs.best(1).tolist() == [[X], [Y], [-1], [-1]]
    assert pairs.best(3).tolist() == [[X, Y, -1], [Y, X, -1], [-1] * 3, [-1] * 3]
    assert pairs.frequent(1).tolist() == [X]
    assert pairs.frequent(3).tolist() == [X, Y]  # the third never stood there
    assert pairs.pairs == 2


def test_many_pairs_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexicon, "CELLS", 20)
    pairs = Lexicon([np.array([A, B])] * 10, [np.array([X, Y])] * 10, (4, 3))
    assert pairs.pairs == 4  # 60 cells: every third
