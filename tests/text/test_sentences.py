"""Sentences by rules, in the scripts and forms they are for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.text.sentences import SPLITTERS, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["It is raining.", "We stay.", "Do you?", "Yes!"],
        ["Mr. Smith met J. R. Jones in the U.S. Senate.", "He left."],
        ["See Fig. 3 and No. 512.", "He said no.", "Then he left in 1990.", "So it was."],
        ["He paid 3.5 dollars.", "“Why?”", "“Because.”", "The end..."],
        ["Wait... what?", "(He left.)", "Then 5 came."],
        ['"Go!" he said.', "She went."],
        ["Am 3. Oktober kam er z.B. Montag.", "Das war gut."],
        ["¿Qué?", "¡No!", "Él se fue."],
    ],
    ids=lambda s: s[0],
)
def test_latin_script_as_people_write_it(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


def test_text_whose_tokens_stand_apart() -> None:
    """As in WikiText: a full stop is a word; an abbreviation keeps its own."""
    sentences = [
        "It is related to H. americanus , at 2 @.@ 5 kg .",
        'He said " Go ! "',
        "Then he left U.S. soil .",
        '" What ? " she asked .',
    ]
    assert split_sentences(" " + " ".join(sentences) + " ") == sentences


def test_chinese() -> None:
    sentences = ["他说：“你好。”", "然后走了。", "真的吗？！", "气温是3.5度。", "好"]
    assert split_sentences("".join(sentences)) == sentences
    assert split_sentences("他走了。Then he slept. 我醒了！") == ["他走了。", "Then he slept.", "我醒了！"]


def test_nothing_is_a_sentence_of_nothing() -> None:
    assert split_sentences("") == split_sentences(" \t ") == []
    assert split_sentences("...") == ["..."]
    assert SPLITTERS["lines"](" One. Two. ") == ["One. Two."]


@given(st.text(alphabet="aB .!?。”\"'()1…我", max_size=60))
def test_no_character_is_lost_or_moved(line: str) -> None:
    found = split_sentences(line)
    assert "".join("".join(found).split()) == "".join(line.split())
    assert all(sentence == sentence.strip() and sentence for sentence in found)
