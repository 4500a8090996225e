"""Word level, character level and WordPiece, by hand; and BERT's own vocabularies."""

import pytest

from regard.errors import RegardError
from regard.text import Char, Word, WordPiece, from_bert, train_tokenizer
from tests.text import corpus


def test_words_by_frequency():
    tokenizer = train_tokenizer(Word(size=7), ["the cat sat", "the dog sat", "the end"])
    # the 3, sat 2, then cat, dog, end once each: of equals the first in the alphabet
    assert [tokenizer.tokens([i])[0] for i in range(7)] == ["<pad>", "<unk>", "<s>", "</s>", "the", "sat", "cat"]
    assert tokenizer.encode("the dog sat") == [4, 1, 5]
    assert tokenizer.decode([2, 4, 1, 5, 3, 0]) == "the <unk> sat"


def test_rare_words_and_a_size_that_is_not_reached():
    assert train_tokenizer(Word(size=1000), ["a a b"]).size == 6
    assert train_tokenizer(Word(size=1000, min_frequency=2), ["a a b"]).size == 5


def test_a_cjk_character_is_a_word():
    tokenizer = train_tokenizer(Word(), corpus.CHINESE)
    assert tokenizer.tokens(tokenizer.encode("我爱NLP")) == ["我", "爱", "NLP"]
    assert tokenizer.decode(tokenizer.encode("你好，世界")) == "你好，世界"
    assert tokenizer.decode(tokenizer.encode("我爱NLP")) == "我爱 NLP"
    assert tokenizer.words(tokenizer.encode("我爱中国")) == [0, 1, 2, 3]


def test_jieba_finds_longer_words():
    pytest.importorskip("jieba")
    tokenizer = train_tokenizer(Word(segmenter="jieba"), corpus.CHINESE)
    assert tokenizer.tokens(tokenizer.encode("我爱中国")) == ["我", "爱", "中国"]
    assert tokenizer.decode(tokenizer.encode("我爱中国")) == "我爱中国"


def test_characters():
    tokenizer = train_tokenizer(Char(), ["ba a", "我爱中国"])
    # a twice, then once each by code point: space, b, and the four of the second line
    assert [tokenizer.tokens([i])[0] for i in range(4, tokenizer.size)] == ["a", "▁", "b", "中", "国", "我", "爱"]
    assert tokenizer.encode("我爱中国") == [9, 10, 7, 8]
    assert tokenizer.decode(tokenizer.encode("a  b ")) == "a  b "  # spaces are characters
    assert tokenizer.encode("x") == [tokenizer.unk]


def test_wordpiece_is_greedy_from_the_left():
    tokenizer = train_tokenizer(WordPiece(size=18), ["un able unable ables unables"] * 3)
    pieces = tokenizer.tokens(tokenizer.encode("unables"))
    assert pieces[0] == "unables" or all(piece.startswith("##") for piece in pieces[1:])
    assert tokenizer.decode(tokenizer.encode("unable un")) == "unable un"
    vocabulary = {tokenizer.tokens([i])[0] for i in range(tokenizer.size)}
    for word in ("able", "ables", "unable"):  # longest match first, checked against the vocabulary by hand
        rest, expected = word, []
        while rest:
            prefix = "##" if expected else ""
            end = next(e for e in range(len(rest), 0, -1) if prefix + rest[:e] in vocabulary)
            expected.append(prefix + rest[:end])
            rest = rest[end:]
        assert tokenizer.tokens(tokenizer.encode(word)) == expected
    assert tokenizer.encode("unxable") == [tokenizer.unk]  # one unknown character spoils the word


VARIED = [
    "Hello, World! Don't stop.",
    "  two  spaces ",
    "naïve café ÀÉÎ ß 我爱中国。你好 🙂",
    "12345 6,789.00 (unaffable) [x]",
    "x" * 120 + " end",
    "",
    "\u200b\x00zero\u00ad e\u0301 ﬁ ①",
]
SMALL = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "hello",
    "he",
    "##llo",
    "world",
    "wo",
    "##rl",
    "##d",
    ",",
    "!",
    "我",
]


def compare_with_transformers(path, lower, texts):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.BertTokenizer(vocab=str(path), do_lower_case=lower)
    ours = from_bert(path, lower)
    assert ours.encode_batch(texts) == theirs(texts, add_special_tokens=False)["input_ids"]
    return ours


@pytest.mark.parametrize("lower", [True, False])
def test_bert_vocabulary_small(tmp_path, lower):
    (tmp_path / "vocab.txt").write_text("\n".join(SMALL) + "\n", encoding="utf-8")
    ours = compare_with_transformers(tmp_path / "vocab.txt", lower, [*VARIED, "Hello worlds hello, world!"])
    assert (ours.pad, ours.unk, ours.bos, ours.eos, ours.mask) == (0, 1, 2, 3, 4)
    assert ours.encode("hello world, 我!") == [5, 8, 12, 14, 13]
    assert not {2, 3, 4} & set(ours.encode("[CLS] [SEP] [MASK]"))
    assert ours.decode([2, 5, 9, 11, 3]) == "hello wod"


@pytest.mark.parametrize("name, lower", [("bert-base-uncased", True), ("bert-base-chinese", False)])
def test_bert_own_vocabulary(name, lower):
    texts = VARIED + corpus.real_lines("multi30k/val.en.gz")[:500]
    texts += corpus.real_lines("classical-modern-zh/valid.tsv.gz")[:300]
    ours = compare_with_transformers(corpus.real(f"tokenizers/{name}/vocab.txt"), lower, texts)
    assert ours.special["cls"] == 101
    assert ours.mask == 103


def test_bert_wrong_file(tmp_path):
    (tmp_path / "vocab.txt").write_text("hello\nworld\n")
    with pytest.raises(RegardError, match=r"vocab\.txt.*\[PAD\]"):
        from_bert(tmp_path / "vocab.txt")
