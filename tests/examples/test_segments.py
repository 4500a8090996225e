"""Segments of documents: halves, partners from elsewhere, lengths, and nothing invented."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.ragged import RaggedArray
from regard.errors import RegardError
from regard.examples.segments import SegmentExamples, SegmentPairs, SentenceIndex, SingleSegments, truncate_pair

MARK, ROOM = 3, 29


def rows(documents: list[list[list[int]]]) -> RaggedArray:
    flat = [[i for sentence in document for i in [*sentence, MARK]] for document in documents]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in flat])])
    return RaggedArray(np.array([i for row in flat for i in row]), offsets)


def written(count: int = 300, seed: int = 0, longest: int = 9) -> list[list[list[int]]]:
    """Every token is its own, so that a segment shows where it is from."""
    draw, token, documents = Random(seed), 10, []
    for n in range(count):
        document = []
        for _ in range(1 if n % 10 == 0 else draw.randint(2, 20)):
            size = draw.randint(1, longest)
            document.append(list(range(token, token + size)))
            token += size
        documents.append(document)
    return documents


def segments(index: SentenceIndex, made: SegmentExamples) -> list[tuple[list[int], list[int], bool, int]]:
    found = []
    for n in range(len(made)):
        one, two = (index.ids(*made.span[n, s], made.skip[n, s], made.keep[n, s]).tolist() for s in (0, 1))
        found.append((one, two, not made.is_random_next[n], int(made.document[n])))
    return found


def book_of(documents: list[list[list[int]]], most: int = ROOM // 2) -> SentenceIndex:
    return SentenceIndex(rows(documents), MARK, most)


def test_half_follow_and_the_others_are_from_another_document() -> None:
    documents = written()
    index = book_of(documents)
    owner = {i: n for n, d in enumerate(documents) for s in d for i in s}
    made = SegmentPairs().make(index, np.arange(len(index)), ROOM, Random(1))
    followed = 0
    for one, two, follows, document in segments(index, made):
        assert one
        assert two
        assert len(one) + len(two) <= ROOM
        assert {owner[i] for i in one} == {document}
        assert len({owner[i] for i in two}) == 1
        if follows:
            assert owner[two[0]] == document
            assert two[0] > one[-1]
        else:
            assert owner[two[0]] != document
        followed += follows
    assert followed / len(made) == pytest.approx(0.5, abs=0.03)
    assert index.single_sentence_documents == 30
    apart = made.is_random_next[np.isin(made.document, np.arange(0, 300, 10))]
    assert apart.all()  # nothing follows a document of one sentence


def test_of_three_documents_none_is_its_own_other() -> None:
    documents = written(3, seed=4)
    index = book_of(documents)
    owner = {i: n for n, d in enumerate(documents) for s in d for i in s}
    met = set()
    for epoch in range(40):
        for _, two, follows, document in segments(index, SegmentPairs().make(index, np.arange(3), ROOM, Random(epoch))):
            if not follows:
                met.add((document, owner[two[0]]))
    assert met == {(a, b) for a in range(3) for b in range(3) if a != b}


def test_what_follows_begins_where_the_first_ends_unless_both_were_cut() -> None:
    index = book_of(written(longest=3))
    made = SegmentPairs(short=0.0).make(index, np.arange(len(index)), ROOM, Random(1))
    whole = [(a, b) for a, b, follows, _ in segments(index, made) if follows and len(a) + len(b) < ROOM]
    assert len(whole) > 50
    assert all(b[0] == a[-1] + 1 for a, b in whole)


def test_examples_are_full_but_for_a_tenth_and_the_ends_of_documents() -> None:
    documents = [[list(range(k, k + 5)) for k in range(d * 10_000 + 10, d * 10_000 + 5010, 5)] for d in range(3)]
    index = book_of(documents)
    for examples, most in ((SegmentPairs(), ROOM), (SingleSegments(), ROOM + 1)):
        made = examples.make(index, np.arange(3), most, Random(2))
        sizes = made.keep.sum(1)
        assert (sizes <= most).all()
        assert (sizes < most).mean() == pytest.approx(0.1, abs=0.04)
    full = SegmentPairs(short=0.0).make(index, np.arange(3), ROOM, Random(2))
    assert (full.keep.sum(1) == ROOM).mean() > 0.98


def test_single_segments_hold_every_sentence_once() -> None:
    documents = written(40, longest=4)
    index = book_of(documents)
    made = SingleSegments(short=0.3).make(index, np.arange(40), ROOM, Random(3))
    lengths = made.span[:, 0, 1] - made.span[:, 0, 0]
    assert (np.sort(made.span[:, 0, 0])[1:] >= np.sort(made.span[:, 0, 1])[:-1]).all()  # none twice
    assert lengths.sum() + len(made) == len(index.flat)  # the marks after the last of each chunk are the difference
    assert made.keep[:, 1].sum() == 0


def test_a_long_sentence_counts_as_several() -> None:
    index = book_of([[list(range(10, 110)), [5, 6]], [[7]]], most=14)
    assert index.sentences == 3
    assert np.diff(index.first).tolist() == [9, 1]
    assert (index.end - index.begin).tolist() == [14] * 7 + [2, 2, 1]
    seen = set()
    for epoch in range(30):
        made = SegmentPairs().make(index, np.arange(2), ROOM, Random(epoch))
        seen |= {i for one, two, _, _ in segments(index, made) for i in one + two}
    assert seen == {*range(10, 110), 5, 6, 7}  # the middle is not all that is ever read


@given(st.integers(0, 80), st.integers(0, 80), st.integers(1, 60))
def test_the_longer_loses_until_both_fit(one: int, two: int, room: int) -> None:
    a, b = one, two
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    assert truncate_pair(one, two, room) == (a, b)


def test_documents_that_give_no_pairs_are_refused() -> None:
    with pytest.raises(RegardError, match=r"one document, .*task\.examples=single"):
        SegmentPairs().check(book_of([[[5], [6]]]))
    with pytest.raises(RegardError, match=r"every document is one sentence, .*task\.documents"):
        SegmentPairs().check(book_of([[[5]], [[6]]]))
    SingleSegments().check(book_of([[[5]]]))
