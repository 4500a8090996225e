"""The choices of `long`: which tokens are read, and what is said of the rest."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import choices, parse_config
from regard.errors import RegardError
from regard.examples.long_text import (
    Extract,
    LongConfig,
    LongText,
    ReadWhole,
    Refuse,
    Segments,
    Shortened,
    Truncate,
    check_long,
    shorten,
    to_long,
)


def characters(texts) -> list[list[int]]:
    """Without white space, so that sizes are easily counted."""
    return [[ord(c) for c in text if not c.isspace()] for text in texts]


def read(long: LongConfig, text: str, room: int, **options) -> tuple[list[str], Shortened | None]:
    rows, done = shorten(long, text, characters([text])[0], room, characters, "line 1", **options)
    return ["".join(map(chr, row)) for row in rows], done


TEXT = "aaa. bbbb. cc."


@pytest.mark.parametrize(
    "long, room, rows, json",
    [
        (Truncate(), 5, ["aaa.b"], {"kind": "truncate", "tokens": 12, "dropped": 7, "segments": 1}),
        (Truncate("tail"), 5, ["b.cc."], {"kind": "truncate", "tokens": 12, "dropped": 7, "segments": 1}),
        (Truncate("both"), 5, ["aaac."], {"kind": "truncate", "tokens": 12, "dropped": 7, "segments": 1}),
        (Segments(), 5, ["aaa.b", "bbb.c", "c."], {"kind": "segments", "tokens": 12, "dropped": 0, "segments": 3}),
        (
            Segments(overlap=2), 7, ["aaa.bbb", "bbb.cc."],
            {"kind": "segments", "tokens": 12, "dropped": 0, "segments": 2},
        ),
        (ReadWhole(), 5, ["aaa.bbbb.cc."], {"kind": "none", "tokens": 12, "dropped": 0, "segments": 1}),
    ],
)  # fmt: skip
def test_what_is_read(long: LongConfig, room: int, rows: list[str], json: dict) -> None:
    found, done = read(long, TEXT, room)
    assert found == rows
    assert done is not None
    assert done.json() == json
    assert read(long, TEXT, 12) == (["aaa.bbbb.cc."], None)


@pytest.mark.parametrize("by", ["tfidf", "centrality", "attention"])
def test_whole_passages_in_their_order(by) -> None:
    text = "The ship sank. Bread rose. The ship was old. A ship, the ship!"
    found, done = read(Extract(by), text, 26, importance=lambda passages: np.array([2.0, 0, 1, 3]))
    chosen = [("Theshipsank.", 1), ("Theshipwasold.", 3), ("Aship,theship!", 4)]
    assert found == ["".join(t for t, n in chosen if n in done.kept)]
    assert 2 not in done.kept
    assert done.passages == 4
    assert done.dropped == done.tokens - len(found[0])
    assert {"passages", "kept"} <= done.json().keys()


def test_the_question_chooses() -> None:
    text = "The ship sank. Bread rose slowly. The ship was old."
    assert read(Extract(), text, 18, question="How does bread rise?")[0] == ["Breadroseslowly."]


def test_a_budget_smaller_than_a_passage_cuts_the_best() -> None:
    found, done = read(Extract(), "Abcdefgh. Abcdefgh ij.", 4)
    assert found == ["Abcd"]
    assert len(done.kept) == 1
    assert (done.dropped, done.passages) == (16, 2)


def test_attention_needs_a_model() -> None:
    with pytest.raises(RegardError, match="by attention only where a trained model reads them; write by: tfidf"):
        read(Extract("attention"), TEXT, 5)


def test_refused() -> None:
    with pytest.raises(RegardError, match="line 1: 12 tokens, and 5 can be read; choose another way with long"):
        read(Refuse(), TEXT, 5)
    with pytest.raises(RegardError, match=r"line 1: segments of 5 tokens cannot share 5; lower long\.overlap"):
        read(Segments(overlap=5), TEXT, 5)
    with pytest.raises(ValueError, match="long is extract, and the task tag knows segments, refuse"):
        check_long(Extract(), ("segments", "refuse"), "tag")


@given(st.text("ab .", max_size=80), st.integers(1, 12), st.sampled_from(sorted(choices(LongConfig))))
def test_rows_fit_and_what_is_not_read_is_counted(text: str, room: int, kind: str) -> None:
    whole = characters([text])[0]
    if len(whole) <= room or kind == "refuse":
        return
    rows, done = shorten(to_long(kind, Truncate()), text, whole, room, characters, "here")
    assert done is not None
    assert done.kind == kind
    assert done.tokens == len(whole)
    assert done.dropped == len(whole) - sum(map(len, rows))
    assert kind == "none" or all(len(row) <= room for row in rows)


@pytest.mark.parametrize(
    "value, wanted",
    [
        ("segments", Segments()),
        ("segment", Segments()),  # an older word
        ("translate", ReadWhole()),
        ("{kind: truncate, keep: tail}", Truncate("tail")),
        ({"kind": "extract", "by": "centrality"}, Extract("centrality")),
        (Refuse(), Refuse()),
        (None, Truncate()),
    ],
)
def test_ways_to_say_it(value, wanted: LongConfig) -> None:
    assert to_long(value, Truncate()) == wanted


@pytest.mark.parametrize(
    "value, said",
    [
        ("cut", "--long is 'cut'; known: truncate, extract, segments, refuse, none"),
        ("segmnts", "--long is 'segmnts'; did you mean segments?"),
        ("{kind: truncate, keep: end}", "keep is 'end'; known: head, tail, both"),
        ("{kind: truncate", "--long, line 1: not valid YAML"),
        ("{keep: tail}", "needs a kind; known: truncate"),
    ],
)
def test_mistakes_are_one_sentence(value, said: str) -> None:
    with pytest.raises(RegardError) as error:
        to_long(value, Truncate(), "--long")
    assert said in str(error.value)


def test_a_recipe_says_it_in_a_word_or_in_full() -> None:
    from regard.tasks.classify import ClassifyConfig

    assert parse_config(ClassifyConfig, {"long": "segments"}).long == Segments()
    assert parse_config(ClassifyConfig, {"long": {"keep": "tail"}}).long == Truncate("tail")
    assert parse_config(ClassifyConfig, {}).long == Truncate()


def test_segments_are_pooled() -> None:
    given = np.log([[0.9, 0.1], [0.2, 0.8]])
    np.testing.assert_allclose(Segments().pooled(given), [0.6, 0.4])  # √(0.9 · 0.2) : √(0.1 · 0.8) is 3 : 2
    np.testing.assert_allclose(Segments(pool="max").pooled(given), [0.9 / 1.7, 0.8 / 1.7])


def test_long_text_without_passages_can_be_counted() -> None:
    parts = Truncate().rows(LongText("here", 9), 4, 0)
    assert parts.rows == [[(0, 4)]]
