"""Text as it is said: half characters and beginnings of stop strings wait."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from regard.predict import text_stream as module
from regard.predict.text_stream import IncrementalDetokenizer


def spell(tokens: Sequence[int]) -> str:
    """Every token is a byte."""
    return bytes(tokens).decode("utf-8", errors="replace")


def say(said: str, stops: Sequence[str] = (), prompt: str = "") -> tuple[list[str], IncrementalDetokenizer]:
    speech = IncrementalDetokenizer(spell, list(prompt.encode()), stops)
    pieces = []
    for byte in said.encode():
        pieces.append(speech.add(byte))
        if speech.stopped:
            break
    return [*pieces, speech.rest()], speech


def test_a_character_is_shown_when_it_is_whole() -> None:
    pieces, _ = say("a€b", prompt="x")
    assert pieces == ["a", "", "", "€", "b", ""]


def test_a_stop_string_is_never_shown_even_in_part() -> None:
    pieces, speech = say("one\n\ntwo", ["\n\n"])
    assert pieces == ["o", "n", "e", "", "", ""]
    assert (speech.text, speech.stopped) == ("one", True)
    pieces, speech = say("one\ntwo", ["\n\n"])
    assert "".join(pieces) == "one\ntwo"
    assert pieces[3:5] == ["", "\nt"]  # it waited for what came next
    assert not speech.stopped
    assert say("to and then", "the")[1].text == "to and "  # one string is one, not three letters


def test_a_stop_string_in_the_prompt_does_not_count() -> None:
    assert "".join(say("b.", ["."], prompt="a. ")[0]) == "b"


@given(st.text(max_size=60), st.lists(st.text(min_size=1, max_size=3), max_size=3), st.text(max_size=5))
def test_pieces_are_the_text_up_to_the_first_stop(said: str, stops: list[str], prompt: str) -> None:
    before = module.DECODED, module.KEPT
    module.DECODED, module.KEPT = 8, 4  # long texts forget what they have shown
    try:
        pieces, speech = say(said.replace("\ufffd", ""), stops, prompt)
    finally:
        module.DECODED, module.KEPT = before
    said = said.replace("\ufffd", "")
    found = [said.find(stop) for stop in stops if stop in said]
    # as bytes come one by one, the stop string that ends first wins
    ends = [said.find(stop) + len(stop) for stop in stops if stop in said]
    expected = said if not found else min(said[: min(ends)].find(s) for s in stops if s in said[: min(ends)])
    assert "".join(pieces) == speech.text == (said if not found else said[:expected])
