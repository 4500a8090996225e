"""Unigram and SentencePiece files against the sentencepiece library."""

import random
import sys

import pytest

from regard.errors import RegardError
from regard.text import SentencePiece, Tokenizer, Unigram, from_sentencepiece, train_tokenizer
from tests.text import corpus

spm = pytest.importorskip("sentencepiece")

TRICKY = [
    "",
    " ",
    "a ",
    " a",
    "a  b",
    "  ba   dine  ",
    "ba\tdine\nga",
    "a\u3000b \u00a0c",
    "▁a▁▁b▁",
    "①②³ ﬁ ½ Å",
    "e\u0301a\u0308o",
    "¨ ¨x",
    "<s> </s> <unk> <pad> <0x0A>",
    "☃☃ ba ☃",
    "ａｂｃ我爱中国。",
    "\u200bzero\x00nul\r\n",
    "nananananana bababa",
    "ba<sep>ga <sep> <sep>",
    "🙂👩‍👩‍👧 かがか\u3099 각\u1100\u1161\u11a8",
]
CHOICES = [
    {"model_type": "unigram"},
    {"model_type": "bpe"},
    {"model_type": "unigram", "byte_fallback": True, "vocab_size": 600},
    {"model_type": "bpe", "byte_fallback": True, "vocab_size": 600},
    {"model_type": "unigram", "normalization_rule_name": "identity", "remove_extra_whitespaces": False},
    {"model_type": "unigram", "user_defined_symbols": ["<sep>"], "pad_id": 3},
    {"model_type": "bpe", "user_defined_symbols": ["<sep>"]},
    {"model_type": "unigram", "add_dummy_prefix": False},
    {"model_type": "unigram", "treat_whitespace_as_suffix": True},
    {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc_cf", "bos_id": -1, "eos_id": -1},
]


def make_model(folder, lines, **options):
    (folder / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    options = {"vocab_size": 400, "minloglevel": 2, **options}
    spm.SentencePieceTrainer.train(input=str(folder / "text.txt"), model_prefix=str(folder / "m"), **options)
    return folder / "m.model", spm.SentencePieceProcessor(model_file=str(folder / "m.model"))


def random_texts(count):
    draw = random.Random(1)
    alphabet = "bdinagé  ▁¨①ﬁ\u0301\u0308☃我<>s/0\u3000\u00a0"
    return ["".join(draw.choice(alphabet) for _ in range(draw.randrange(1, 25))) for _ in range(count)]


@pytest.mark.parametrize("options", CHOICES, ids=lambda o: "-".join(map(str, o.values()))[:40])
def test_model_gives_sentencepieces_ids(tmp_path, options):
    path, theirs = make_model(tmp_path, corpus.invented(600, seed=1), **options)
    ours = from_sentencepiece(path)
    texts = TRICKY + random_texts(500) + corpus.invented(200, seed=2)
    assert ours.encode_batch(texts) == theirs.encode(texts)
    assert (ours.unk, ours.size >= theirs.get_piece_size()) == (theirs.unk_id(), True)

    known = corpus.invented(50, seed=3)
    assert [ours.decode(ours.encode(text)) for text in known] == known

    ours.save(tmp_path / "tokenizer.json")
    path.unlink()  # a model folder does not need the .model
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode_batch(texts) == theirs.encode(texts)


def test_model_on_real_text(tmp_path):
    lines = corpus.real_lines("multi30k/val.en.gz") + corpus.real_lines("multi30k/val.de.gz")
    lines += [line.replace("\t", " ") for line in corpus.real_lines("classical-modern-zh/valid.tsv.gz")[:500]]
    path, theirs = make_model(tmp_path, lines, vocab_size=5000)
    more = corpus.real_lines("multi30k/train.de.gz")[:3000] + lines
    assert from_sentencepiece(path).encode_batch(more) == theirs.encode(more)


def test_decoding_of_bytes(tmp_path):
    path, _ = make_model(tmp_path, corpus.invented(600, 1), byte_fallback=True, vocab_size=600)
    ours = from_sentencepiece(path)
    assert ours.decode(ours.encode("ba ☃ 我")) == "ba ☃ 我"
    assert ours.words(ours.encode("ba ☃")) == sorted(ours.words(ours.encode("ba ☃")))


def test_config_loads_a_model_for_each_side(tmp_path):
    path, theirs = make_model(tmp_path, corpus.invented(600, seed=1))
    other = tmp_path / "other"
    other.mkdir()
    path2, theirs2 = make_model(other, corpus.invented(600, seed=1), vocab_size=300)
    config = SentencePiece(path=str(path), target_path=str(path2), shared=False)
    assert train_tokenizer(config, [], "en").encode("badine") == theirs.encode("badine")
    assert train_tokenizer(config, [], "de", side="target").encode("badine") == theirs2.encode("badine")
    with pytest.raises(ValueError, match="belong together"):
        SentencePiece(path=str(path), target_path=str(path2))


def test_files_that_are_no_models(tmp_path):
    path, _ = make_model(tmp_path, corpus.invented(300, seed=1), vocab_size=200)
    (tmp_path / "cut.model").write_bytes(path.read_bytes()[:-7])
    (tmp_path / "text.model").write_text("not a model, just text")
    (tmp_path / "empty.model").write_bytes(b"")
    for name in ("cut.model", "text.model", "empty.model", "missing.model"):
        with pytest.raises(RegardError, match=name):
            from_sentencepiece(tmp_path / name)


def token_counts(folder, training, held_out, size, coverage=1.0):
    options = {"character_coverage": coverage, "normalization_rule_name": "identity", "pad_id": 3}
    _, theirs = make_model(folder, training, vocab_size=size, **options)
    ours = train_tokenizer(Unigram(size=size, coverage=coverage), training)
    assert ours.size == size
    return sum(map(len, ours.encode_batch(held_out))), sum(map(len, theirs.encode(held_out)))


@pytest.mark.parametrize(("size", "coverage"), [(200, 1.0), (600, 1.0), (600, 0.999)])
def test_own_training_is_as_short_as_sentencepieces(tmp_path, size, coverage):
    training = corpus.invented(3000, seed=1)
    ours, theirs = token_counts(tmp_path, training, corpus.invented(500, seed=2), size, coverage)
    assert abs(ours / theirs - 1) < 0.01


@pytest.mark.parametrize(
    ("side", "lines", "size"), [("de", 10_000, 4000), pytest.param("en", 29_000, 8000, marks=pytest.mark.slow)]
)
def test_own_training_is_as_short_as_sentencepieces_on_real_text(tmp_path, side, lines, size):
    """More texts and sizes: benchmarks/vocabulary.py."""
    training = corpus.real_lines(f"multi30k/train.{side}.gz")[:lines]
    ours, theirs = token_counts(tmp_path, training, corpus.real_lines(f"multi30k/val.{side}.gz"), size)
    assert abs(ours / theirs - 1) < 0.01


def test_characters_that_the_library_reserves_are_learned():
    lines = [f"{line} ▁▁a ▅▅ \0\0 \u2047 \ufffd \U0010fffd" for line in corpus.invented(300, seed=1)]
    tokenizer = train_tokenizer(Unigram(size=200), lines)
    rows = tokenizer.encode_batch(lines)
    assert tokenizer.unk not in {i for row in rows for i in row}
    assert [tokenizer.decode(row) for row in rows] == lines


def test_coverage_leaves_the_rarest_characters_out():
    lines = [*corpus.invented(300, seed=1), "☃ 我"]
    assert tokenizer_knows(Unigram(size=200), lines, "☃")
    assert not tokenizer_knows(Unigram(size=200, coverage=0.999), lines, "☃")


def tokenizer_knows(config, lines, text):
    tokenizer = train_tokenizer(config, lines)
    return tokenizer.unk not in tokenizer.encode(text)


def test_the_library_is_asked_for_by_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(RegardError, match=r'the package sentencepiece; run pip install "regard\[spm\]"'):
        train_tokenizer(Unigram(size=200), corpus.invented(300, seed=1))
