"""Prefixes and phrases as a user gives them: text, beside the input; what cannot be met is named."""

import itertools
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import regard
from regard import text
from regard.cli import main as cli
from regard.cli import streams
from regard.decoding import Beam, Greedy, Sample
from regard.errors import RegardError
from regard.examples.vocabulary import Vocabulary
from regard.predict.constraints import Constraints, spaceless, word_boundaries
from regard.predict.options import TranslationOptions
from regard.predict.translation import Translator
from regard.text import Tokenizer
from tests.models.test_transformer import build

LINES = ["w1 w2 w3", "", "w7 w8", "w4 w4 w9 w2 w11"]
PREFIXES = ["W5 W6", "", "", "W1"]
PHRASES = [["W9 W10", "W3"], [], ["W11"], []]


@pytest.fixture(scope="module")
def translator(toy_run: Path) -> Translator:
    made: Translator = regard.load(toy_run, "cpu")
    made.model.double()
    return made


def holds(output: str, phrase: str) -> bool:
    return f" {phrase} " in f" {output} "


@pytest.mark.parametrize("decoding", [Greedy(), Beam(size=3), Sample(seed=3)], ids=str)
def test_outputs_begin_as_asked(translator: Translator, decoding) -> None:
    free, found = translator.translate(LINES, decoding), translator.translate(LINES, decoding, prefixes=PREFIXES)
    assert [bool(line) for line in found] == [True, False, True, True]
    assert all(holds(line[: len(prefix)], prefix) for line, prefix in zip(found, PREFIXES, strict=True) if prefix)
    assert found[2] == free[2]
    assert not any(line.startswith(prefix) for line, prefix in zip(free, PREFIXES, strict=True) if prefix)


def test_scores_are_those_of_the_whole_text(translator: Translator) -> None:
    found = translator.nbest(LINES[:1], 1, Beam(size=3), prefixes=PREFIXES[:1], phrases=PHRASES[:1])[0][0]
    assert found.log_probability == pytest.approx(translator.score([(LINES[0], found.text)])[0][0], abs=1e-6)


def test_phrases_appear_with_a_beam_or_a_greedy_recipe(translator: Translator) -> None:
    assert isinstance(translator.recipe.decoding, Greedy)
    for decoding in (None, Beam(size=5)):
        found = translator.translate(LINES, decoding, phrases=PHRASES)
        assert all(holds(line, phrase) for line, asked in zip(found, PHRASES, strict=True) for phrase in asked)
    free = translator.translate(LINES, Beam(size=5))
    assert found == translator.translate(LINES, phrases=PHRASES)  # a beam of 5
    assert found[3] == free[3]
    assert not holds(free[0], "W9 W10")
    for decoding in (Greedy(), Sample()):
        with pytest.raises(RegardError, match=r"need a beam search; use a beam of 5 or so \(--beam 5\)"):
            translator.translate(LINES, decoding, phrases=PHRASES)


@pytest.mark.parametrize(
    "keys, message",
    [
        ({"phrases": [[], [], ["W1", "nowhere"], []]}, "phrases, line 13: the output cannot hold 'nowhere': the voc"),
        ({"phrases": [["W1", "W2 " * 25 + "W3"], [], [], []]}, "phrases, line 11: .*it has 26 pieces, .* room for 25"),
        ({"phrases": [[], ["W1"], [], []]}, "phrases, line 12: .* cannot hold 'W1': the line of the input is empty"),
        ({"prefixes": ["", "W1", "", ""]}, "prefixes, line 12: .* begin with 'W1': the line of the input is empty"),
        ({"prefixes": ["", "", "", "xyz"]}, "prefixes, line 14: the output cannot begin with 'xyz': the vocabulary"),
        ({"prefixes": ["", "", "W1 " * 30, ""]}, "prefixes, line 13: .*: it has 30 pieces, and there is room for 24"),
        ({"prefixes": ["W1"]}, "4 lines, but prefixes for 1; give one for each, empty for nothing"),
        ({"phrases": []}, "4 lines, but phrases for 0"),
        ({"phrases": ["W1", "", "", ""]}, "phrases a list of strings for each line"),
        ({"prefixes": "W1 W"}, r"translate: prefixes is 'W1 W'; write a list: \['W1 W'\]"),
    ],
)
def test_what_cannot_be_met_is_named(translator: Translator, keys, message: str) -> None:
    with pytest.raises(RegardError, match=message):
        translator.translate(LINES, Beam(size=4), before=10, **keys)


ENGLISH = ["the old dog saw a cat.", "a cat saw the dog, cats too!", "old cats and dogs; the dog's bone"] * 20
KINDS = ["word", "bpe", "byte_bpe", "unigram", "wordpiece", "char"]


def trained(kind: str, lines: list[str], size: int, language: str = "en") -> Tokenizer:
    config = {"word": text.Word, "bpe": text.Bpe, "byte_bpe": text.ByteBpe, "unigram": text.Unigram}
    config |= {"wordpiece": text.WordPiece, "char": text.Char}
    sizes = {} if kind in ("word", "char") else {"size": 258 + size if kind == "byte_bpe" else size}
    return text.train_tokenizer(config[kind](**sizes), lines, language)


@pytest.mark.parametrize("kind", KINDS)
def test_phrases_are_encoded_as_within_a_text(kind: str) -> None:
    lines = ["the old dog saw a cat", "a cat saw the dog", "old cats and dogs"] * 20
    tokenizer = trained(kind, lines, 22)
    asked = Constraints.of(TranslationOptions(phrases=[["the dog"]]), 1, tokenizer).lines[0].phrase_ids[0]
    whole = tokenizer.encode("a cat saw the dog")
    assert tuple(whole[-len(asked) :]) == asked
    assert tokenizer.decode(asked).strip() == "the dog"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefix", ["", "the dog"])
def test_phrases_stand_by_themselves(translator: Translator, kind: str, prefix: str) -> None:
    """A model that has learned nothing says words of any pieces."""
    made = Translator(*untrained(trained(kind, ENGLISH, 29), ("en", "en")), translator.recipe)
    phrases = [["cat"], ["dog", "saw"], ["old cat"], ["cats", "a"], ["the", "dog", "bone"]]
    given = {"prefixes": [prefix] * 5} if prefix else {}
    found = made.nbest(["a cat"] * 5, 3, Beam(size=5), phrases=phrases, **given)
    for each, asked in zip(found, phrases, strict=True):
        assert each
        for output, phrase in itertools.product(each, asked):
            assert re.search(rf"(?<![\w.,!?;:]){phrase}(?!\w)", output.text), (output.text, phrase)


def untrained(tokenizer: Tokenizer, languages: tuple[str, str]):
    model = build(tokenizer.size)
    model.output.weight.data *= 4  # more certain of what it says
    return model, Vocabulary.of(tokenizer, languages)


@pytest.mark.parametrize("kind", ["bpe", "byte_bpe", "unigram", "char", "word"])
def test_phrases_of_a_text_without_spaces_may_stand_anywhere(translator: Translator, kind: str) -> None:
    lines = ["我爱北京的猫。", "猫和狗都在北京", "我的狗爱我的猫"] * 20
    tokenizer = trained(kind, lines, 20, "zh")
    asked = word_boundaries(tokenizer)
    assert not any(asked.inside_word(a, b) for row in tokenizer.encode_batch(lines) for a, b in itertools.pairwise(row))
    made = Translator(*untrained(tokenizer, ("zh", "zh")), translator.recipe)
    found = made.translate(["我爱"], Beam(size=5), phrases=[["北京", "狗"]], prefixes=["我的猫"])[0]
    assert "北京" in found.replace(" ", "")
    assert "狗" in found


@pytest.mark.parametrize(
    "kind, first, second",
    [
        ("bpe", "sing", "Katze "), ("bpe", "3.", "5 "), ("unigram", " Katze", "n"), ("wordpiece", "Katze", "##n"),
        ("byte_bpe", "ĠKatze", "n"), ("byte_bpe", "ĠKatze", "Ã"), ("char", "e", "n"),
    ],
)  # fmt: skip
def test_two_pieces_are_in_one_word(kind: str, first: str, second: str) -> None:
    assert _meet(kind, first, second)


@pytest.mark.parametrize(
    "kind, first, second",
    [
        ("bpe", "sing ", "Katze "), ("bpe", "„", "Katze "), ("bpe", "爱", "Katze "), ("unigram", " Katze", "."),
        ("unigram", "sing", " Katze"), ("wordpiece", "Katze", "n"), ("byte_bpe", "ĠKatze", "Ġn"), ("char", "e", " "),
        ("byte_bpe", "ĠKatze", "."), ("char", "爱", "猫"), ("word", "Katze", "n"),
    ],
)  # fmt: skip
def test_two_pieces_are_in_two_words(kind: str, first: str, second: str) -> None:
    assert not _meet(kind, first, second)


def _meet(kind: str, first: str, second: str) -> bool:
    tokenizer = trained(kind, ENGLISH, 29)
    tokenizer.pieces = [*tokenizer.pieces[:4], first, second]
    return word_boundaries(tokenizer).inside_word(4, 5)


def test_languages_without_spaces() -> None:
    assert [language for language in ("zh", "ja", "zh-CN", "zh_Hant", "de", "en", "") if spaceless(language)] == [
        "zh",
        "ja",
        "zh-CN",
        "zh_Hant",
    ]


# --- as files beside the input --------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "begin").write_text("\n".join(PREFIXES) + "\n", encoding="utf-8")
    (tmp_path / "hold").write_text("".join("\t".join(asked) + "\n" for asked in PHRASES), encoding="utf-8")
    return {"prefixes": tmp_path / "begin", "phrases": tmp_path / "hold"}


def command(run: Path, *given: object, lines: list[str] = LINES) -> list[str]:
    arguments = ["translate", str(run), "--device", "cpu", *map(str, given)]
    found = CliRunner().invoke(cli.app, arguments, input="".join(f"{x}\n" for x in lines), catch_exceptions=False)
    return found.stdout.splitlines()


@pytest.mark.parametrize("chunk", [1, 3, 4096])
def test_files_stream_with_the_input(toy_run: Path, files, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BATCH_LINES", chunk)
    found = command(toy_run, "--prefixes", files["prefixes"], "--phrases", files["phrases"])
    wanted = regard.load(toy_run, "cpu").translate(LINES, Beam(size=5), prefixes=PREFIXES, phrases=PHRASES)
    assert found == wanted
    assert found[0].startswith("W5 W6 ")


@pytest.mark.parametrize("name", ["prefixes", "phrases"])
def test_files_of_another_length_and_what_cannot_be_met(
    toy_run: Path, files, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files[name]
    with pytest.raises(RegardError, match=f"{path} ends before line 5 of standard input; it needs a line for each"):
        command(toy_run, f"--{name}", path, lines=[*LINES, "w1"])
    with pytest.raises(RegardError, match=f"{path}, line 4: a line too many: standard input has 3"):
        command(toy_run, f"--{name}", path, lines=LINES[:3])
    monkeypatch.setattr(streams, "BATCH_LINES", 2)
    path.write_text("\n\n\nnever heard\n")
    with pytest.raises(RegardError, match=f"{path}, line 4: the output cannot .* 'never heard': the vocabulary has no"):
        command(toy_run, f"--{name}", path)
    with pytest.raises(RegardError, match="there is no such file"):
        command(toy_run, f"--{name}", path.with_name("missing"))


def test_a_phrase_may_be_in_one_piece_with_the_mark_after_it() -> None:
    tokenizer = text.train_tokenizer(text.Bpe(size=23), ["Auto. Auto. Auto. Auto. Auto rot? rot rot rot"] * 9, "de")
    asked = Constraints.of(TranslationOptions(phrases=[["Auto", "rot", "rot."]]), 1, tokenizer).lines[0]
    said = [{tokenizer.decode(way) for way in (first, *others)}
            for first, others in zip(asked.phrase_ids, asked.variants, strict=True)]  # fmt: skip
    assert said == [{"Auto", "Auto.", "Auto?"}, {"rot", "rot.", "rot?"}, {"rot."}]
    assert all(len(way) >= len(first) for first, o in zip(asked.phrase_ids, asked.variants, strict=True) for way in o)
