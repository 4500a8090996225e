"""`regard tokenise`: pieces, ids and masks, by a run's vocabulary or one that is learned at once."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli.main import app
from regard.errors import RegardError
from regard.examples.vocabulary import Vocabulary
from tests.text import corpus


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join([*corpus.ENGLISH, *corpus.CHINESE, "我爱中国", "我爱中国"]), encoding="utf-8")
    return path


def tokenise(*words: object, stdin: str = "") -> str:
    shown = CliRunner().invoke(app, ["tokenise", *map(str, words)], input=stdin)
    if shown.exception and not isinstance(shown.exception, SystemExit):
        raise shown.exception
    assert shown.exit_code == 0, shown.output
    return shown.stdout


def test_characters_of_a_file_padded_to_a_length(text: Path) -> None:
    found = json.loads(tokenise("--train", text, "--kind", "char", "--length", 100, "--json", "--text", "我爱中国"))
    assert found["pieces"] == [*"我爱中国", *["<pad>"] * 96]
    assert found["mask"] == [1] * 4 + [0] * 96
    assert found["ids"][4:] == [0] * 96
    assert len(set(found["ids"][:4])) == 4
    assert min(found["ids"][:4]) > 3


@pytest.mark.parametrize("kind", ["word", "bpe", "wordpiece", "unigram", "bert"])
def test_lines_of_stdin_give_a_line_each(text: Path, kind: str) -> None:
    size = ["--size", 85 if kind == "unigram" else 150]
    lines = tokenise("--train", text, "--kind", kind, *size, stdin="我爱中国\n\nthe dog\n").split("\n")
    assert len(lines) == 4  # the last is empty
    assert lines[1] == "\t"
    pieces, ids = lines[0].split("\t")
    assert len(pieces.split(" ")) == len(ids.split(" "))
    assert "".join(pieces.split(" ")).replace("▁", "").replace("</w>", "").replace("##", "") == "我爱中国"
    padded = tokenise("--train", text, "--kind", kind, *size, "--length", 9, "--text", "我爱中国").split("\t")
    assert padded[1].split()[: len(ids.split())] == ids.split()
    assert padded[2].split() == ["1"] * len(ids.split()) + ["0"] * (9 - len(ids.split()))


def test_bytes_are_shown_as_the_text_they_are(text: Path) -> None:
    learn = ("--train", text, "--kind", "byte_bpe", "--size", 300)
    pieces, ids = tokenise(*learn, "--text", "我爱中国").strip().split("\t")
    assert len(pieces.split(" ")) == len(ids.split(" "))
    assert "æ" not in pieces
    found = json.loads(tokenise(*learn, "--json", "--text", "我"))
    assert "".join(found["pieces"]) == "æĪĳ"  # as the vocabulary has them


def test_the_vocabulary_of_a_run(toy_run: Path) -> None:
    vocabulary = Vocabulary.load(toy_run / "tokenizer", ("en", "de"))
    for side, tokenizer in zip(("source", "target"), vocabulary, strict=True):
        found = json.loads(tokenise(toy_run, "--side", side, "--json", "--text", "w1 w2"))
        assert found["ids"] == tokenizer.encode("w1 w2")


def test_a_size_that_is_not_reached_is_said_on_stderr(text: Path) -> None:
    shown = CliRunner().invoke(app, ["tokenize", "--train", str(text), "--size", "100000", "--text", "a"])
    assert shown.exit_code == 0
    assert ", not 100,000: no other pair is frequent enough to merge" in shown.stderr


def test_mistakes_are_a_sentence(text: Path, toy_run: Path) -> None:
    train = ("--train", text)
    for words, sentence in [
        ([], "give a trained model, or --train FILE"),
        ([toy_run, *train], "give a trained model, or --train FILE"),
        ([toy_run, "--kind", "bpe"], "belong to --train"),
        ([toy_run, "--side", "left", "--text", "a"], "write source or target"),
        ([*train, "--kind", "bpee"], "did you mean bpe"),
        ([*train, "--kind", "char", "--size", 300], "char has no size"),
        ([*train, "--size", 10], "10 pieces are too few; write --size [0-9]+ or more, or --kind byte_bpe$"),
        ([*train, "--kind", "unigram", "--size", 10], "; write --size [0-9]+ or more, or --kind byte_bpe$"),
        ([*train, "--kind", "unigram", "--size", 9999], "; write --size [0-9]+ or less$"),
        ([*train, "--size", 200, "--length", 2, "--text", "a", "--text", "a b c"], "line 2: .* do not fit --length 2"),
        ([*train, "--text", "a", "--input", text], "leave out one"),
    ]:
        with pytest.raises(RegardError, match=sentence):
            tokenise(*words)
