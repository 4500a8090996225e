"""Tokenizers of strangers, in a Hugging Face BERT and in a model folder: each is a sentence, or read, within 5 s."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import regard
from benchmarks import damage
from regard.errors import RegardError
from regard.interop.families import import_checkpoint
from tests.interop.test_bert import LINES, PIECES, saved

transformers = pytest.importorskip("transformers")

TOKEN = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
EXPLODING = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
DOUBLING = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT whose vocabulary is in tokenizer.json alone."""
    folder = tmp_path_factory.mktemp("bert") / "theirs"
    damage.bert_of_others(folder)
    return folder


@pytest.fixture(scope="module")
def ours(theirs: Path) -> Path:
    """The same, imported: a model folder without a manifest."""
    import_checkpoint(theirs, theirs.parent / "ours")
    (theirs.parent / "ours" / "manifest.json").unlink()
    return theirs.parent / "ours"


def added(count: int, length: int) -> list[dict[str, object]]:
    return [{"id": len(PIECES) + n, "content": f"{n}".rjust(length, "q"), **TOKEN} for n in range(count)]


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


Change = Callable[[dict[str, Any]], object]
NOT_VOCABULARY = "tokenizer.json: its vocabulary is none of pieces and their ids"
IMPORTED: list[tuple[Change, str]] = [  # what is wrong in theirs, and what is said; "" where only pieces are read
    (lambda t: t["model"].update(vocab=[]), NOT_VOCABULARY),
    (lambda t: t["model"].update(vocab={"a": "b"}), NOT_VOCABULARY),
    (lambda t: t["model"]["vocab"].update(a=10**30), "the ids of its pieces are not 0 to"),
    (lambda t: t["model"]["vocab"].update(a=0), "the ids of its pieces are not 0 to"),
    (lambda t: t["model"]["vocab"].pop("[MASK]"), "the ids of its pieces are not 0 to"),
    (
        lambda t: t["model"]["vocab"].update({"x" * 10**7: t["model"]["vocab"].pop("mat")}),
        "a piece has more than 4,096",
    ),
    (lambda t: t["model"]["vocab"].update({f"x{n}": len(PIECES) + n for n in range(100_000)}), "config.json says 15"),
    (lambda t: t["model"].update(type=["WordPiece"]), "no tokenizer.json with a WordPiece"),
    (lambda t: t.update(model=None), "no tokenizer.json with a WordPiece"),
    (lambda t: t.update(pre_tokenizer=EXPLODING), ""),
    (lambda t: t.update(normalizer={"type": "Sequence", "normalizers": [DOUBLING] * 40}), ""),
    (lambda t: t.update(added_tokens=added(20_000, 600)), ""),
    (lambda t: t["model"].update(max_input_chars_per_word=10**15), ""),
]


@pytest.mark.parametrize("number", range(len(IMPORTED)))
def test_a_bert_of_a_stranger(theirs: Path, tmp_path: Path, number: int) -> None:
    change, said = IMPORTED[number]
    path = theirs / "tokenizer.json"
    kept = path.read_text("utf-8")
    content = json.loads(kept)
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")
    try:
        with damage.bounded():
            if said:
                with pytest.raises(RegardError, match=said):
                    import_checkpoint(theirs, tmp_path / "out")
                assert not (tmp_path / "out").exists()
            else:
                import_checkpoint(theirs, tmp_path / "out")
                assert len(regard.load(tmp_path / "out", "cpu").fill([*LINES, "a" * 50_000])) == 4
    finally:
        path.write_text(kept, encoding="utf-8")


def test_a_bert_that_claims_a_vocabulary_of_a_billion(theirs: Path, tmp_path: Path) -> None:
    path = theirs / "config.json"
    kept = path.read_text("utf-8")
    path.write_text(json.dumps(json.loads(kept) | {"vocab_size": 10**9}))
    try:
        with damage.bounded(), pytest.raises(RegardError, match=r"says 1,000,000,000 pieces, and .* has 15 rows"):
            import_checkpoint(theirs, tmp_path / "out")
    finally:
        path.write_text(kept)


@pytest.mark.parametrize("depth", [1_000, 200_000])
def test_json_of_any_depth(theirs: Path, tmp_path: Path, depth: int) -> None:
    path = theirs / "tokenizer.json"
    kept = path.read_text("utf-8")
    path.write_text(f'{{"model": {nested(depth)}}}')
    try:
        with damage.bounded(), pytest.raises(RegardError, match=r"nested too deeply|WordPiece vocabulary"):
            import_checkpoint(theirs, tmp_path / "out")
    finally:
        path.write_text(kept)


def unigram(document: dict[str, Any], depth: int) -> None:
    pieces = [[piece, 0.0] for piece in PIECES] + [["a" * n, -1.0] for n in range(2, depth)]
    document["model"] = {"type": "Unigram", "unk_id": 1, "vocab": pieces, "byte_fallback": False}
    document["pre_tokenizer"] = document["normalizer"] = None


FOLDER: list[tuple[Change, str]] = [
    (lambda d: d["model"].update(max_input_chars_per_word=10**15), "its words have more than 100 characters"),
    (lambda d: d["model"].update(max_input_chars_per_word="many"), "TypeError"),
    (lambda d: d.update(added_tokens=added(20_000, 600)), "added tokens have more than 100,000 characters"),
    (lambda d: d.update(added_tokens=added(1, 10_000_000)), "added tokens have more than 100,000 characters"),
    (lambda d: d.update(added_tokens=[[]]), "TypeError"),
    (lambda d: d.update(added_tokens={"content": "a"}), "TypeError"),
    (lambda d: d.update(pre_tokenizer=EXPLODING), "a pre_tokenizer that is not read"),
    (lambda d: d.update(normalizer=DOUBLING), "a normalizer or pre_tokenizer that is not read"),
    (lambda d: d.update(post_processor={"type": "ByteLevel"}), "a post_processor"),
    (lambda d: unigram(d, 3000), "more than 100 pieces begin with each other"),
    (lambda d: d["model"].update(vocab=nested(500)), "damaged"),
    (lambda d: d["model"].update(continuing_subword_prefix="#" * 10_000_000), ""),
]


@pytest.mark.parametrize("number", range(len(FOLDER)))
def test_a_model_folder_of_a_stranger(ours: Path, number: int) -> None:
    change, said = FOLDER[number]
    path = ours / "tokenizer" / "tokenizer.json"
    kept = path.read_text("utf-8")
    content = copy.deepcopy(json.loads(kept))
    change(content["tokenizer"])
    path.write_text(json.dumps(content), encoding="utf-8")
    damage.resummed(path)
    try:
        with damage.bounded():
            if said:
                with pytest.raises(RegardError, match=r"tokenizer.json: damaged") as error:
                    regard.load(ours, "cpu")
                assert said in str(error.value)
            else:
                regard.load(ours, "cpu").fill([*LINES, "a" * 50_000])
    finally:
        path.write_text(kept, encoding="utf-8")


def test_what_is_refused_in_a_folder_is_no_vocabulary_of_ours(tmp_path: Path) -> None:
    """The bounds leave room: a hundred nested pieces are read and cut a long line in seconds."""
    from regard.text.tokenizer import check_parts

    document: dict[str, Any] = {"added_tokens": added(100, 600)}
    unigram(document, 100)
    check_parts(document)
    saved(tmp_path / "bert", "BertModel")
    import_checkpoint(tmp_path / "bert", tmp_path / "run")
