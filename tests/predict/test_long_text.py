"""Over-long lines in parts: where they are cut, that every part fits and nothing is lost, and how they are joined."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import regard
from regard.cli import main as cli
from regard.decoding import Beam, Greedy, Sample, length_penalty
from regard.errors import RegardError
from regard.examples.long_text import Shortened, Truncate
from regard.predict.long_text import LineSegments, split_text
from regard.predict.translation import Translator


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def characters(texts: Sequence[str]) -> list[int]:
    return [len(text.replace(" ", "")) for text in texts]


@pytest.mark.parametrize(
    "text, parts",
    [
        ("One two it. Four five? “Six!” Seven", ["One two it.", "Four five?", "“Six!”", "Seven"]),
        ("Dr. Who paid 3.50 there. e.g. twice", ["Dr. Who paid 3.50", "there. e.g. twice"]),  # neither ends a sentence
        ("Prof. Ho was in. He left", ["Prof. Ho was in.", "He left"]),  # as the one splitter of text/sentences.py knows
        ("one two, three four five; six seven", ["one two,", "three four five;", "six seven"]),
        ("a b, c, d e, f", ["a b, c,", "d e, f"]),  # as much as fits
        ("one two three four five six seven", ["one two three four", "five six seven"]),
        ("one two three four five, six", ["one two three four", "five,", "six"]),
        ("short", ["short"]),
    ],
)
def test_where_it_is_cut(text: str, parts: list[str]) -> None:
    assert split_text(text, 4, words) == parts


def test_text_without_spaces() -> None:
    assert split_text("我爱你。你呢？好，很好，非常好！", 5, characters) == [
        "我爱你。",
        "你呢？",
        "好，很好，",
        "非常好！",
    ]
    assert split_text("天地玄黄宇宙洪荒", 3, characters) == ["天地玄", "黄宇宙", "洪荒"]


@settings(max_examples=200, deadline=None)
@given(st.text("ab .,!?。，é\u3000\n", max_size=60), st.integers(1, 8))
def test_every_part_fits_and_nothing_is_lost(text: str, limit: int) -> None:
    parts = split_text(text, limit, characters)
    assert all(0 < len(part.replace(" ", "")) <= limit or not part.replace(" ", "") for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())


# --- translated -----------------------------------------------------------------------------------------------------


@pytest.fixture
def translator(toy_run: Path) -> Translator:
    """Knows lines of up to six words."""
    made: Translator = regard.load(toy_run, "cpu")
    made.model.double()
    data = made.recipe.data
    made.recipe = replace(made.recipe, data=replace(data, filters=replace(data.filters, max_length=6)))
    return made


LONG = "w1 w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12 w13"
PARTS = ["w1 w2 w3 w4 w5 w6", "w7 w8 w9 w10 w11 w12", "w13"]


@pytest.mark.parametrize("decoding", [Greedy(), Beam(size=3)], ids=str)
def test_a_line_is_its_parts(translator: Translator, decoding) -> None:
    said: list[str] = []
    found = translator.nbest(["w3 w4", LONG, ""], 1, decoding, long="segment", warn=said.append)
    assert said == [
        "1 line(s) longer than 6 pieces were translated in segments, first line 2; 0 of 13 pieces were dropped"
    ]
    assert found[1][0].long == Shortened("segments", 13, 0, 3)
    assert found[0][0].long is None
    short, *parts = (options[0] for options in translator.nbest(["w3 w4", *PARTS], 1, decoding))
    assert [len(options) for options in found] == [1, 1, 0]
    assert found[0][0] == short
    assert found[1][0].text == " ".join(part.text for part in parts)
    total, length = sum(part.log_probability for part in parts), sum(len(part.tokens) + 1 for part in parts)
    assert found[1][0].log_probability == pytest.approx(total)
    wanted = total / length_penalty(length, decoding) if isinstance(decoding, Beam) else total
    assert found[1][0].score == pytest.approx(wanted)


def test_several_outputs_of_parts(translator: Translator) -> None:
    found = translator.nbest([LONG], 3, Beam(size=3), long="segment")[0]
    parts = translator.nbest(PARTS, 3, Beam(size=3))
    assert {t.text for t in found} == {" ".join(part[n].text for part in parts if part[n].text) for n in range(3)}
    assert [t.score for t in found] == sorted((t.score for t in found), reverse=True)


def test_draws_do_not_depend_on_what_else_is_in_the_text(translator: Translator) -> None:
    lines, draw = ["w1 w2", LONG, "w3", LONG], Sample(seed=3)
    whole = translator.translate(lines, draw, long="segment")
    assert [
        *translator.translate(lines[:3], draw, long="segment"),
        *translator.translate(lines[3:], draw, long="segment", before=3),
    ] == whole
    assert whole[1] != whole[3]
    assert whole[0] == translator.translate(["w1 w2"], draw)[0]
    tokens = translator.nbest([f"{PARTS[0]} {PARTS[0]}"], 1, draw, long="segment")[0][0].tokens
    assert tokens[: len(tokens) // 2] != tokens[len(tokens) // 2 :]  # equal parts are drawn apart


def test_progress_counts_lines(translator: Translator) -> None:
    told: list[tuple[int, int]] = []
    translator.translate([LONG, "w1"], long="segment", progress=lambda what, n, of: told.append((n, of)))
    assert told[-1] == (2, 2)


def test_what_is_asked_of_a_line_in_parts(translator: Translator) -> None:
    found = translator.translate(["w1", LONG], long="segment", prefixes=["", "W5 W6"])
    assert found[1].startswith("W5 W6 ")
    assert "W9" in translator.translate(["w1", LONG], long="segment", phrases=[["W9"], []])[0]
    with pytest.raises(RegardError, match="line 12 is translated in parts, of which none is known to hold its phrases"):
        translator.translate(["w1", LONG], long="segment", phrases=[[], ["W9"]], before=10)
    with pytest.raises(RegardError, match=r"in parts \(segment\) have no attention as a whole"):
        translator.nbest([LONG], 1, long="segment", attention=("cross",))


def test_joined_with_a_space_or_nothing() -> None:
    made = {language: LineSegments(["a b c"], 2, words, language).separator for language in ("de", "zh", "ja")}
    assert made == {"de": " ", "zh": "", "ja": ""}


def test_the_command(toy_run: Path) -> None:
    line = " ".join(["w1 w2 w3 w4."] * 80)  # 320 words: 80 sentences
    given = ["translate", str(toy_run), "--device", "cpu", "--long", "segment"]
    found = CliRunner().invoke(cli.app, given, input=f"w1\n{line}\n\n", catch_exceptions=False)
    assert "1 line(s) longer than 256 pieces were translated in segments, first line 2; 0 of 320" in found.stderr
    assert found.stdout.count("\n") == 3
    alone = regard.load(toy_run, "cpu").translate(["w1 " * 4] * 2)
    assert len(alone) == 2
    assert len(found.stdout.splitlines()[1].split()) >= 80


# --- other ways -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "long, lines",
    [
        ("truncate", "w1 w2 w3 w4 w5 w6"),
        ("{kind: truncate, keep: tail}", "w8 w9 w10 w11 w12 w13"),
        ("{kind: truncate, keep: both}", "w1 w2 w3 w11 w12 w13"),
        ("none", LONG),
        ("translate", LONG),
    ],
)
def test_what_is_read_of_a_long_line(translator: Translator, long: str, lines: str) -> None:
    said: list[str] = []
    found = translator.nbest(["w1", LONG], 1, long=long, warn=said.append)[1][0]
    assert found.text == translator.translate([lines], long="none")[0]
    dropped = 13 - len(lines.split())
    assert found.long.dropped == dropped
    tail = f"were cut, first line 2; {dropped} of 13 pieces were dropped"
    assert said == ([f"1 line(s) longer than 6 pieces {tail}"] if dropped else [])


@pytest.mark.parametrize("by", ["tfidf", "centrality", "attention"])
def test_whole_sentences_of_a_long_line(translator: Translator, by: str) -> None:
    sentences = ["W1 w2 w3.", "W4 w5.", "W1 w3.", "W6 w7 w8."]
    said: list[str] = []
    found = translator.nbest([" ".join(sentences)], 1, long={"kind": "extract", "by": by}, warn=said.append)[0][0]
    kept = " ".join(sentences[n - 1] for n in found.long.kept)
    assert found.long.passages == 4
    assert 0 < len(translator.vocabulary.source.encode(kept)) <= 6
    assert found.text == translator.translate([kept])[0]
    assert "were read in whole passages, first line 1; " in said[0]


def test_what_does_not_go_together(translator: Translator) -> None:
    with pytest.raises(RegardError, match="a line that is read in part has no attention as a whole"):
        translator.nbest([LONG], 1, long="{kind: truncate, keep: tail}", attention=("cross",))
    with pytest.raises(RegardError, match="are translated one by one; leave out overlap and pool"):
        translator.translate([LONG], long="{kind: segments, overlap: 2}")
    with pytest.raises(RegardError, match="line 1 has 13 pieces; the model was trained on at most 6"):
        translator.translate([LONG], long="refuse")


def test_the_recipe_says_what_becomes_of_long_lines(translator: Translator) -> None:
    task = translator.recipe.task
    translator.recipe = replace(translator.recipe, task=replace(task, long=Truncate("tail")))
    assert translator.translate([LONG]) == translator.translate(["w8 w9 w10 w11 w12 w13"])


def test_the_command_says_what_was_dropped(toy_run: Path) -> None:
    given = ["translate", str(toy_run), "--device", "cpu", "--json", "--long", "extract"]
    found = CliRunner().invoke(cli.app, given, input="w1\n" + "W2 w3. " * 160 + "\n", catch_exceptions=False)
    first, second = map(json.loads, found.stdout.splitlines())
    assert "long" not in first
    assert second["long"] == {
        "kind": "extract", "tokens": 320, "dropped": 64, "segments": 1, "passages": 160, "kept": list(range(1, 129)),
    }  # fmt: skip
    assert "were read in whole passages, first line 2; 64 of 320 pieces were dropped" in found.stderr
