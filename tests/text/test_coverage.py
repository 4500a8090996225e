"""Input in another script, or of words that nobody has seen, is told of; a few unknown words are not."""

import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

import regard
from regard import text
from regard.cli import main as cli
from regard.text import train_tokenizer
from regard.text.coverage import unknown_ids, unknown_lines

ENGLISH = ["the cat sat on the mat .", "a dog ran to the old house !", "what a fine day it is , isn't it ?"] * 20
CHINESE = ["我喜欢喝咖啡。", "他昨天去了北京。", "你好吗？我很好。", "今天天气很好。"] * 20
ORDINARY = ["the cat sat on the café mat", "a 🐱 sat on the mat .", "a dog ran to 北京 the old house", "", "  ", "!"]
KINDS = {  # with sizes for the English and the Chinese above
    "bpe": (text.Bpe, 70, 50),
    "byte_bpe": (text.ByteBpe, 300, 318),
    "unigram": (text.Unigram, 34, 26),
    "wordpiece": (text.WordPiece, 60, 25),
}


@pytest.mark.parametrize("kind", KINDS)
def test_another_script_is_noticed_and_a_few_characters_are_not(kind: str) -> None:
    tokenizer = train_tokenizer(KINDS[kind][0](size=KINDS[kind][1]), iter(ENGLISH), "en")
    lines = [*ORDINARY, *CHINESE[:3], "да, я люблю кофе.", *ENGLISH[:3]]
    found = unknown_lines(lines, tokenizer.encode_batch(lines), tokenizer)
    assert found == [len(ORDINARY) + n for n in range(4)]


def test_one_long_word_is_not_most_of_a_line() -> None:
    tokenizer = train_tokenizer(text.Word(size=30), iter(ENGLISH), "en")
    lines = ["a incomprehensibilities it", "what a newfangled contraption", "some other words"]
    assert unknown_lines(lines, tokenizer.encode_batch(lines), tokenizer) == [2]


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_of_that_script_knows_it(kind: str) -> None:
    tokenizer = train_tokenizer(KINDS[kind][0](size=KINDS[kind][2]), iter(CHINESE), "zh")
    lines = [*CHINESE[:4], "我很好。"]
    assert unknown_lines(lines, tokenizer.encode_batch(lines), tokenizer) == []


def test_bytes_alone_know_everything() -> None:
    tokenizer = train_tokenizer(text.ByteBpe(size=260), iter(["a b"]), "en")
    assert all(len(piece) == 1 for n, piece in enumerate(tokenizer.pieces) if n not in tokenizer.special.values())
    assert unknown_ids(tokenizer) == {tokenizer.unk}


def test_a_call_warns_of_them(toy_run: Path) -> None:
    translator = regard.load(toy_run, "cpu")
    lines = ["w1 w2", "", "w3 new w4 w5", "我喜欢 喝咖啡", "w1", "any other text"]
    said: list[str] = []
    translator.translate(lines, warn=said.append, before=10)
    assert len(said) == 1
    assert said[0].startswith("2 line(s) are mostly unknown to the model's vocabulary, first line 14; ")
    with pytest.warns(UserWarning, match="first line 4"):
        translator.translate(lines)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator.translate(lines[:3])
    said.clear()
    long = "w1 w2 . " * 60 + "我喜欢 . 喝咖啡 " * 40
    translator.translate(["w1", long, "w2"], long="segment", warn=said.append)
    in_segments, unknown = said
    assert in_segments.startswith("1 line(s) longer than 256 pieces were translated in segments, first line 2; 0 of")
    assert unknown.startswith("1 line(s) are mostly unknown")
    assert "first line 2;" in unknown


def test_a_command_warns_once(toy_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.cli.streams.BATCH_LINES", 2)
    given = "w1 w2\nw2\nw3\n我喜欢\nw4\n北京\n今天 天气\n"
    found = CliRunner().invoke(cli.app, ["translate", str(toy_run), "--device", "cpu"], input=given.encode())
    assert found.stdout.count("\n") == 7
    (line,) = found.stderr.splitlines()
    assert line.startswith("regard: 3 line(s) are mostly unknown to the model's vocabulary, first line 4;")
