"""What holds for every kind: round trips, special tokens, padding, the file."""

import json
import pickle
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.errors import RegardError
from regard.text import Bpe, ByteBpe, Char, Tokenizer, Unigram, Word, WordPiece, train_tokenizer
from tests.text import corpus

TEXT = corpus.ENGLISH + corpus.GERMAN + corpus.CHINESE + corpus.invented(200, seed=1)
CONFIGS = {
    "word": Word(),
    "char": Char(),
    "bpe": Bpe(size=150),
    "byte_bpe": ByteBpe(size=320),
    "wordpiece": WordPiece(size=150),
    "unigram": Unigram(size=150),
}
TOKENIZERS = {name: train_tokenizer(config, TEXT) for name, config in CONFIGS.items()}
every_kind = pytest.mark.parametrize("kind", CONFIGS)
alphabet = st.sampled_from("".join(sorted(set("".join(TEXT)))) + "    \t\n")
known_text = st.text(alphabet, max_size=60)
any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@given(text=known_text)
def test_round_trip_up_to_runs_of_spaces(kind, text):
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.decode(tokenizer.encode(text)) == " ".join(text.split()) == tokenizer.normalise(text)


@given(text=any_text)
def test_round_trip_of_bytes_is_exact(text):
    assert TOKENIZERS["byte_bpe"].decode(TOKENIZERS["byte_bpe"].encode(text)) == text


@given(text=known_text.filter(lambda t: not set(t) & set("\t\n")))
def test_round_trip_of_characters_is_exact(text):
    assert TOKENIZERS["char"].decode(TOKENIZERS["char"].encode(text)) == text


@given(words=st.lists(st.sampled_from(sorted({w for line in corpus.ENGLISH for w in line.split()})), max_size=12))
@pytest.mark.parametrize("kind", ["word", "wordpiece"])
def test_round_trip_of_words(kind, words):
    assert TOKENIZERS[kind].decode(TOKENIZERS[kind].encode("  ".join(words))) == " ".join(words)


@every_kind
@given(text=any_text)
@settings(max_examples=50)
def test_any_text_is_encoded_and_no_special_token_appears(kind, text):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text)
    assert not {tokenizer.pad, tokenizer.bos, tokenizer.eos} & set(ids)
    assert len(tokenizer.tokens(ids)) == len(tokenizer.words(ids)) == len(ids)


@every_kind
def test_special_token_text_is_only_text(kind):
    """Trained on text full of the names, so that merges would spell them if they could."""
    names = ["<pad>", "<unk>", "<s>", "</s>", "x</s>y", " <pad> ", "</w>", "a</w>b"]
    texts = [*names * 5, *TEXT]
    sizes = {"bpe": 160, "byte_bpe": 330, "wordpiece": 160, "unigram": 100}
    tokenizer = train_tokenizer(type(CONFIGS[kind])(**({"size": sizes[kind]} if kind in sizes else {})), texts)
    for name in names:
        ids = tokenizer.encode(f"A {name} dog")
        assert not {0, 2, 3} & set(ids)
        assert tokenizer.decode([2, *ids, 3, 0]).split() == ["A", *name.split(), "dog"]


@every_kind
def test_chinese(kind):
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode("我爱中国")
    assert tokenizer.unk not in ids
    assert tokenizer.decode(ids) == "我爱中国"


@every_kind
def test_empty_text(kind):
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""
    assert tokenizer.words([]) == []
    assert tokenizer.encode_batch([]) == []
    assert tokenizer.encode_batch(["", "a"])[0] == []


@every_kind
@pytest.mark.parametrize("text", ["a" * 100_000, "我" * 100_000, "a dog " * 17_000, "☃" * 100_000])
def test_a_very_long_line_is_no_trouble(kind, text):
    start = time.perf_counter()
    tokenizer = TOKENIZERS[kind]
    tokenizer.decode(tokenizer.encode(text))
    assert time.perf_counter() - start < 60  # quadratic time would be minutes


@every_kind
def test_training_with_a_very_long_line_is_no_trouble(kind):
    start = time.perf_counter()
    train_tokenizer(CONFIGS[kind], [*TEXT, "ab" * 50_000, "我爱" * 50_000])
    assert time.perf_counter() - start < 120


def test_nul_is_a_character():
    tokenizer = train_tokenizer(Bpe(size=11), ["a\0b a\0b"])
    assert tokenizer.decode(tokenizer.encode("a\0b")) == "a\0b"


def test_words_of_pieces():
    words = {kind: TOKENIZERS[kind] for kind in ("bpe", "byte_bpe", "unigram", "wordpiece", "char")}
    for kind, tokenizer in words.items():
        ids = tokenizer.encode("A strange dog")
        numbers = tokenizer.words(ids)
        assert sorted(set(numbers)) == [0, 1, 2], kind
        spelled = ["", "", ""]
        for number, i in zip(numbers, ids, strict=True):
            spelled[number] += tokenizer.decode([i]).removeprefix("##")
        assert [word.strip() for word in spelled] == ["A", "strange", "dog"], kind
        assert tokenizer.words([tokenizer.bos, *ids, tokenizer.eos]) == [-1, *numbers, -1]


def test_padding_by_hand():
    tokenizer = TOKENIZERS["bpe"]
    ids, mask = tokenizer.pad_batch([[7, 8, 9], [], [5]])
    assert ids.tolist() == [[7, 8, 9], [0, 0, 0], [5, 0, 0]]
    assert mask.tolist() == [[True] * 3, [False] * 3, [True, False, False]]
    assert ids.dtype == np.int64
    ids, mask = tokenizer.pad_batch([[7], [8, 9]], length=5, bos=True, eos=True)
    assert ids.tolist() == [[2, 7, 3, 0, 0], [2, 8, 9, 3, 0]]
    assert mask.sum(1).tolist() == [3, 4]
    assert tokenizer.pad_batch([], length=3)[0].shape == (0, 3)
    with pytest.raises(RegardError, match="4 tokens does not fit a length of 3"):
        tokenizer.pad_batch([[8, 9]], length=3, bos=True, eos=True)


def test_normal_forms_case_and_moses():
    decomposed = "Cafe\u0301 ﬁn"
    assert train_tokenizer(Char(normalise="nfc"), [decomposed]).normalise(decomposed) == "Café ﬁn"
    assert train_tokenizer(Char(normalise="nfkc", lower=True), [decomposed]).normalise(decomposed) == "café fin"
    tokenizer = train_tokenizer(Bpe(size=120, moses=True, lower=True), {"en": corpus.ENGLISH, "de": corpus.GERMAN})
    ids = tokenizer.encode("The man's dog, walking!")
    assert tokenizer.decode(ids) == "the man 's dog , walking !"
    assert tokenizer.detokenise(tokenizer.decode(ids)) == "the man's dog, walking!"
    german = tokenizer.in_language("de")
    assert german.normalise("man's dog") == "man ' s dog"
    assert (german.size, tokenizer.language) == (tokenizer.size, "en")


def test_extra_special_tokens():
    tokenizer = train_tokenizer(Bpe(size=150), TEXT, specials=["<mask>", "<cls>"])
    assert tokenizer.mask == 4
    assert tokenizer.special["cls"] == 5
    assert tokenizer.tokens([4, 5]) == ["<mask>", "<cls>"]
    assert 4 not in tokenizer.encode("a <mask> dog")


@every_kind
def test_file_round_trip(kind, tmp_path):
    tokenizer = TOKENIZERS[kind]
    tokenizer.save(tmp_path / "deep" / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "deep" / "tokenizer.json")
    assert loaded.dumps() == tokenizer.dumps()
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode_batch(TEXT) == tokenizer.encode_batch(TEXT)
    assert set(json.loads((tmp_path / "deep" / "tokenizer.json").read_text("utf-8"))) == {"regard", "tokenizer"}
    assert pickle.loads(pickle.dumps(tokenizer)).encode_batch(TEXT) == tokenizer.encode_batch(TEXT)  # to workers
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["tokenizer.json"]


def test_files_that_are_not_ours(tmp_path):
    good = TOKENIZERS["bpe"].dumps()
    document = json.loads(good)
    changed = json.loads(good)
    changed["tokenizer"]["model"]["vocab"]["dog"] = 12345
    outside = json.loads(good)
    outside["regard"]["special"]["eos"] = 10**6
    newer = json.loads(good)
    newer["regard"]["version"] = 99
    lacking = json.loads(good)
    del lacking["regard"]["stages"]
    files = {
        "cut.json": good[: len(good) // 2],
        "foreign.json": json.dumps(document["tokenizer"]),
        "list.json": "[1, 2]",
        "changed.json": json.dumps(changed),
        "outside.json": json.dumps(outside),
        "newer.json": json.dumps(newer),
        "lacking.json": json.dumps(lacking),
        "empty.json": "",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / "binary.json").write_bytes(b"\x80\x04\x95\xff pickle")
    for name in [*files, "binary.json", "missing.json"]:
        with pytest.raises(RegardError, match=name):
            Tokenizer.load(tmp_path / name)


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RegardError, match=r"tokenizer\.json: cannot be written"):
        TOKENIZERS["bpe"].save(tmp_path / "file" / "tokenizer.json")
