"""BERT's kind of vocabulary, learned here or read from its folder: the pieces that Hugging Face finds."""

from pathlib import Path

import pytest

from regard import text
from regard.errors import RegardError
from regard.text import Tokenizer
from regard.text.config import BertPieces

LINES = ["The unbelievable lobster, it's blue!", "Don't believe the blue lobsters.", "我们 believe, Émile."] * 5
HARD = [
    "",
    "  ",
    "the LOBSTER's café!",
    "unbelievable-blue 我们believe\tit",
    "[MASK] [CLS] lobster",
    "ﬁne ½",
    "a" * 200,
]


@pytest.mark.parametrize("lower", [True, False])
def test_the_ids_are_those_of_their_tokenizer(tmp_path: Path, lower: bool) -> None:
    transformers = pytest.importorskip("transformers")
    made = text.train_tokenizer(BertPieces(size=60, lower=lower), LINES)
    pieces = made.tokens(range(made.size))
    assert pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert made.size == len(set(pieces)) == 60
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    theirs = transformers.BertTokenizer(vocab=str(tmp_path / "vocab.txt"), do_lower_case=lower)
    for line in LINES + [line for line in HARD if "[" not in line]:
        assert made.encode(line) == theirs.encode(line, add_special_tokens=False), line
    read = text.train_tokenizer(BertPieces(path=str(tmp_path), lower=lower), [])
    assert [read.encode(line) for line in HARD] == [made.encode(line) for line in HARD]
    assert read.special == made.special


def test_text_cannot_spell_a_mark_and_a_saved_one_is_the_same(tmp_path: Path) -> None:
    made = text.train_tokenizer(BertPieces(size=60), LINES)
    assert not {made.mask, made.bos, made.eos} & set(made.encode("[MASK] [CLS] [SEP]"))
    made.save(tmp_path / "t.json")
    assert Tokenizer.load(tmp_path / "t.json").encode_batch(HARD) == made.encode_batch(HARD)


def test_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="kind bert cleans text by rules of its own"):
        BertPieces(moses=True)
    with pytest.raises(RegardError, match="every line is empty"):
        text.train_tokenizer(BertPieces(), ["", " "])
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\na\n", encoding="utf-8")
    with pytest.raises(RegardError, match=r"not a BERT vocab.txt; it lacks \[CLS\]"):
        text.train_tokenizer(BertPieces(path=str(tmp_path)), [])
