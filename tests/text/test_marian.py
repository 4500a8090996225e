"""OPUS-MT's vocabulary against Hugging Face's MarianTokenizer, on files that SentencePiece itself has written."""

import json
from pathlib import Path

import pytest

from regard.errors import RegardError
from regard.text import Tokenizer, train_tokenizer
from regard.text.config import Marian
from regard.text.marian import MarianSpecials, from_folder, from_marian, read_id_table
from tests.interop.opus import LINES, make_tokenizer

transformers = pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

HARD = [
    "",
    "   ",
    "  two  spaces ",
    ">>deu<< The letters are funny.",
    ">>fra<<The letters",
    ">>xxx<< an unknown language",
    "the code >>deu<< in the middle",
    ">>deu<<",
    "not a code: >>deu",
    "Ünïcödé, ﬁne № ½ 東京 \U0001f600!",
    "tab\tand\u00a0no-break",
    "<s> and <0x41>",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("opus")
    make_tokenizer(made)
    return made


@pytest.mark.parametrize("options", [{}, {"model_type": "bpe"}, {"normalization_rule_name": "identity"}])
def test_ids_are_those_of_the_library(tmp_path: Path, options: dict[str, str]) -> None:
    make_tokenizer(tmp_path, **options)
    theirs = transformers.MarianTokenizer.from_pretrained(tmp_path)
    for n, side in enumerate(("source", "target")):
        ours = from_folder(tmp_path, side, "en")
        lines = [*HARD, *(pair[n] for pair in LINES[:300])]
        wanted = [theirs(text_target=line).input_ids if side == "target" else theirs(line).input_ids for line in lines]
        assert [[*row, ours.eos] for row in ours.encode_batch(lines)] == wanted
    assert any(ours.unk in row for row in wanted)


def test_text_comes_back_as_the_library_writes_it(folder: Path) -> None:
    theirs, ours = transformers.MarianTokenizer.from_pretrained(folder), from_folder(folder, "target", "de")
    rows = [row for row in ours.encode_batch([pair[1] for pair in LINES[:200]]) if ours.unk not in row]
    assert len(rows) > 100
    assert ours.decode_batch(rows) == [theirs.decode(row, skip_special_tokens=True) for row in rows]


def test_one_file_keeps_it_whole(folder: Path, tmp_path: Path) -> None:
    ours = from_folder(folder, "source", "en")
    ours.save(tmp_path / "source.json")
    again = Tokenizer.load(tmp_path / "source.json")
    assert again.encode_batch(HARD) == ours.encode_batch(HARD)
    assert (again.size, again.pad, again.bos, again.eos) == (ours.size, ours.size - 1, ours.size - 1, 0)
    assert again.fingerprint == ours.fingerprint


def test_a_recipe_may_name_the_folder(folder: Path) -> None:
    config = Marian(path=str(folder))
    source, target = (train_tokenizer(config, [], side=side) for side in ("source", "target"))
    assert source.size == target.size
    assert source.encode("The letters") != target.encode("The letters")


def test_bytes_are_refused(tmp_path: Path) -> None:
    make_tokenizer(tmp_path, size=500, byte_fallback=True)
    with pytest.raises(RegardError, match="as bytes"):
        from_folder(tmp_path, "source", "en")


def test_tables_that_are_none(folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "vocab.json"
    for text, said in (
        ("[1, 2]", "another kind of JSON"),
        ('{"a": 0', "cut short"),
        ('{"a": 0, "b": 2}', "not 0 to 1"),
        ('{"a": "0"}', "not a table"),
    ):
        table.write_text(text)
        with pytest.raises(RegardError, match=said):
            read_id_table(table)
    with pytest.raises(RegardError, match="has no <unk>"):
        from_marian(folder / "source.spm", {"a": 0}, MarianSpecials(0, 0, 0))
    with pytest.raises(RegardError, match="outside the table"):
        from_marian(folder / "source.spm", {"<unk>": 0}, MarianSpecials(3, 0, 0))
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0}))
    with pytest.raises(RegardError, match="<pad> and </s>"):
        from_folder(tmp_path, "source", "en")
