"""A batch as two strips: every id once and in order, spans that share a strip out, and few shapes."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.accel.training_graph import leaves
from regard.models.batch import PairBatch, RaggedRows, collate_pairs
from regard.models.packed import PackedSequence
from tests.models.promises import MARKS, batch

LENGTHS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=40)


def strips_of(b: PairBatch) -> tuple[PackedSequence, PackedSequence]:
    assert b.packed is not None
    return b.packed


def spans_of(strip: PackedSequence) -> tuple[list[int], list[int]]:
    spans = strip.layout.spans
    assert spans is not None
    count = int(spans.count)
    return spans.start[:count].tolist(), spans.length[:count].tolist()


def real_of(b: PairBatch) -> list[list[list[int]]]:
    """The rows of both sides without their padding."""
    seen = torch.ones_like(b.source, dtype=torch.bool) if b.source_real is None else b.source_real
    sides = ((b.source, seen), (b.target, b.target_real))
    return [[row[there].tolist() for row, there in zip(ids, real, strict=True)] for ids, real in sides]


def key(b: PairBatch) -> list:
    """What a recording is found by: the shapes of tensors, and all else as it is."""
    return [tuple(x.shape) if isinstance(x, torch.Tensor) else x for x in leaves(b.fixed())]


@settings(deadline=None, max_examples=60)
@given(LENGTHS)
def test_strips_are_the_rows_end_to_end(lengths: list[tuple[int, int]]) -> None:
    b = batch(lengths)
    for strip, rows in zip(strips_of(b), real_of(b), strict=True):
        (start, length), ids = spans_of(strip), strip.ids[0].tolist()
        flat = [word for row in rows for word in row]
        assert ids[: len(flat)] == flat
        assert [ids[a : a + n] for a, n in zip(start, length, strict=True)][: len(rows)] == rows
        assert start == [sum(length[:n]) for n in range(len(start))]  # end to end, none beside another
        assert sum(length) == len(ids)  # and nothing is left over
        spans = strip.layout.spans
        assert spans is not None
        assert max(length) <= spans.longest == strip.layout.end
        assert {x.dtype for x in (spans.start, spans.length, spans.count)} == {torch.int32}
        assert strip.layout.position[0].tolist() == [place for n in length for place in range(n)]


@settings(deadline=None, max_examples=60)
@given(LENGTHS)
def test_both_sides_have_as_many_spans_and_filler_is_alone(lengths: list[tuple[int, int]]) -> None:
    b = batch(lengths)
    (_, source), (_, target) = map(spans_of, strips_of(b))
    assert len(source) == len(target)
    assert source[: len(lengths)] == [s + 1 for s, _ in lengths]
    assert target[: len(lengths)] == [t + 1 for _, t in lengths]
    assert all(min(pair) == 0 for pair in zip(source[len(lengths) :], target[len(lengths) :], strict=True))


@settings(deadline=None, max_examples=30)
@given(LENGTHS)
def test_labels_are_below_zero_at_filler_alone(lengths: list[tuple[int, int]]) -> None:
    b = batch(lengths)
    labels = strips_of(b)[1].labels
    assert labels is not None
    assert b.labels is not None
    assert labels.shape == strips_of(b)[1].ids[0].shape
    assert torch.equal(labels[: len(b.labels)], b.labels)
    assert (labels[len(b.labels) :] == -1).all()


def test_fifteen_empty_sentences() -> None:
    """As many spans as there can be for so few ids: every sentence has one, and filler needs one on each side."""
    (_, source), (_, target) = map(spans_of, strips_of(batch([(0, 0)] * 15)))
    assert source == [1] * 15 + [1, 0]
    assert target == [1] * 15 + [0, 1]


def test_shapes_come_again() -> None:
    """Batches of 4,000 tokens and of a few hundred sentences each: hundreds of them have a few dozen shapes."""
    draw = np.random.default_rng(0)
    keys = set()
    for _ in range(200):
        usual = draw.integers(5, 40)
        rows = [draw.integers(4, 30, n) for n in draw.integers(usual, usual + 8, 4000 // (usual + 8))]
        keys.add(tuple(key(collate_pairs(RaggedRows.of(rows), RaggedRows.of(rows), MARKS, MARKS))))
    assert len(keys) < 40


def test_batches_alike_have_one_key() -> None:
    """As many ids to the nearest step, however they are shared out among sentences."""
    first, second = batch([(9, 12)] * 30, seed=1), batch([(8, 11), (10, 13)] * 15, seed=2)
    assert key(first) == key(second) != key(batch([(9, 12)] * 40))
    assert key(first) != key(batch([(9, 20)] * 30))  # a larger tile
    assert strips_of(first)[0].ids.shape == (1, 304)  # 300 ids: the next of steps of 16
