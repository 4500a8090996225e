"""SQuAD's measure: cases that its own script is known to count so."""

import pytest

from regard.evaluation.squad import answer_metrics, exact_match, normalise_answer, word_f1


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("The  Cat!", "cat"),
        ("a.m.", "am"),
        ("an-other", "another"),
        ("the-end", "theend"),
        ("A 'quoted' an apple", "quoted apple"),
        ("theatre", "theatre"),
        ("U.S. dollars", "us dollars"),
        ("\t\u00a0x ", "x"),
        ("the", ""),
        ("naïve – café", "naïve – café"),  # only ASCII punctuation goes
    ],
)
def test_what_does_not_count(text: str, wanted: str) -> None:
    assert normalise_answer(text) == wanted


def test_one_answer() -> None:
    assert exact_match("the Eiffel Tower.", "Eiffel tower") == 1
    assert exact_match("Eiffel", "Eiffel tower") == 0
    assert word_f1("Eiffel", "the Eiffel tower") == pytest.approx(2 / 3)
    assert word_f1("tower tower", "tower") == pytest.approx(2 / 3)  # a word counts as often as it is in both
    assert word_f1("tower tower", "tower tower hill") == pytest.approx(4 / 5)
    assert word_f1("red", "blue") == 0
    assert word_f1("", "") == word_f1("the", "a") == 1
    assert word_f1("", "x") == word_f1("x", "") == 0


def test_the_nearest_of_several_counts_and_none_means_nothing() -> None:
    found = answer_metrics(["Denver Broncos", "", "x"], [["The Broncos", "Denver Broncos!"], [], []])
    assert {name: entry["value"] for name, entry in found.items()} == {"exact_match": 66.6667, "f1": 66.6667}
    found = answer_metrics(["Denver"], [["the", "Denver Broncos"]])  # an answer of articles alone is none
    assert found["f1"]["value"] == pytest.approx(66.6667)
    assert found["exact_match"]["value"] == 0
