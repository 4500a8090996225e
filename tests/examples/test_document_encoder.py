"""Documents to ids with their marks, prompts, and ids to text: for vocabularies that fold white space, or keep it."""

import pytest

from regard import text
from regard.examples.document_encoder import DocumentEncoder
from regard.text.config import Bpe, ByteBpe, Char, Unigram, Word, WordPiece

LINES = ["the cat sat", "", " on the mat", "the café 猫"] * 3
SOME = "\n".join(LINES) + "\n"
KEEPING = [Char(), ByteBpe(size=264)]
FOLDING = [Word(), Bpe(size=22), WordPiece(size=26), Unigram(size=18)]


def encoder(config: object, form: str = "file") -> DocumentEncoder:
    return DocumentEncoder(text.train_tokenizer(config, [line + "\n" for line in LINES]), form)  # type: ignore[arg-type]


@pytest.mark.parametrize("config", KEEPING, ids=lambda c: c.kind)
def test_white_space_that_is_kept_is_text(config: object) -> None:
    r = encoder(config)
    t = r.tokenizer
    (row,) = r.encode_batch([SOME])
    assert (row[0], row[-1]) == (t.bos, t.eos)
    assert t.bos not in row[1:]
    assert t.eos not in row[:-1]
    assert r.decode(row) == SOME
    assert r.end == t.eos
    (line,) = encoder(config, "line").encode_batch(["the cat\n"])
    assert encoder(config, "line").decode(line) == "the cat"  # nothing but </s> ends it


@pytest.mark.parametrize("config", FOLDING, ids=lambda c: c.kind)
def test_white_space_that_is_folded_leaves_ends_of_lines(config: object) -> None:
    r = encoder(config)
    t = r.tokenizer
    (row,) = r.encode_batch([SOME])
    assert row[0] == t.bos
    assert row.count(t.eos) == len(LINES)  # blank lines too, as WikiText counts
    assert r.decode(row[:-1]) == "\n".join(" ".join(line.split()) for line in LINES)
    assert r.end == t.bos  # </s> goes on in the next line; a document is over where another opens
    assert encoder(config, "line").end == t.eos


@pytest.mark.parametrize("config", [*KEEPING, *FOLDING], ids=lambda c: c.kind)
def test_a_prompt_is_the_beginning_of_its_document(config: object) -> None:
    r = encoder(config)
    (whole,) = r.encode_batch(["the cat sat\n\nthe mat\n"])
    prompt = r.prompt("the cat sat\n\nthe")
    assert whole[: len(prompt)] == prompt
    assert r.prompt("") == [r.tokenizer.bos]


def test_words_of_text_that_is_cut_already() -> None:
    """WikiText's own <unk> is the unknown word, and 戦場 stays one word."""
    r = encoder(Word(segmenter="spaces"))
    t = text.train_tokenizer(Word(segmenter="spaces"), ["the <unk> of 戦場 の"])
    assert t.encode("<unk> anything") == [t.unk, t.unk]
    assert t.decode(t.encode("the 戦場 の")) == "the 戦場 の"
    assert t.size == 4 + 4
    assert r.fingerprint != encoder(Word(segmenter="spaces"), "line").fingerprint
