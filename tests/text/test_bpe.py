"""BPE: published worked examples, an obvious twin of the trainer, bytes, and GPT-2's own vocabulary."""

import itertools
import json
import random
from collections import Counter

import pytest

from regard.errors import RegardError
from regard.text import Bpe, ByteBpe, from_gpt2, train_tokenizer
from tests.text import corpus


def merges(tokenizer):
    return [tuple(pair) for pair in tokenizer.model["merges"]]


def slow_merges(words: Counter, count: int) -> list[tuple[str, str]]:
    """Algorithm 1 of arXiv:1508.07909: the most frequent pair each round; of equals, the first learned."""
    rank = {c: i for i, c in enumerate(sorted({c for word in words for c in word}))}
    split = {word: list(word) for word in words}
    found = []
    while len(found) < count:
        pairs: Counter = Counter()
        for word, pieces in split.items():
            for pair in itertools.pairwise(pieces):
                pairs[pair] += words[word]
        best, frequency = min(pairs.items(), key=lambda x: (-x[1], rank[x[0][0]], rank[x[0][1]]), default=((), 0))
        if frequency < 2:
            break
        found.append(best)
        rank.setdefault("".join(best), len(rank))
        for pieces in split.values():
            i = 0
            while i < len(pieces) - 1:
                if (pieces[i], pieces[i + 1]) == best:
                    pieces[i : i + 2] = ["".join(best)]
                i += 1
    return found


def test_the_papers_example():
    """low 5, lower 2, newest 6, widest 3: es, est, est</w>, lo, low, ... (ties may fall either way)."""
    text = ["low"] * 5 + ["lower"] * 2 + ["newest"] * 6 + ["widest"] * 3
    tokenizer = train_tokenizer(Bpe(size=4 + 11 + 10), text)  # eleven characters with the end-of-word mark, ten merges
    pieces = {"".join(pair).replace(" ", "</w>") for pair in merges(tokenizer)}
    assert {"es", "est</w>", "lo", "low", "newest</w>", "low</w>"} <= pieces
    assert tokenizer.tokens(tokenizer.encode("lowest newest")) == ["low", "est</w>", "newest</w>"]


def test_the_textbooks_example():
    """Jurafsky and Martin: low 5, lowest 2, newer 6, wider 3, new 2 gives er, er_, new, low, newer_, low_."""
    text = ["low"] * 5 + ["lowest"] * 2 + ["newer"] * 6 + ["wider"] * 3 + ["new"] * 2
    tokenizer = train_tokenizer(Bpe(size=4 + 11 + 8), text)
    assert merges(tokenizer)[:2] == [("e", "r"), ("er", " ")]
    assert {"er ", "new", "low", "newer ", "low "} <= {a + b for a, b in merges(tokenizer)}
    assert tokenizer.tokens(tokenizer.encode("lower newer")) == ["low", "er</w>", "newer</w>"]


@pytest.mark.parametrize("seed", range(5))
def test_trainer_equals_the_obvious_one(seed):
    draw = random.Random(seed)
    words = ["".join(draw.choice("abcd") for _ in range(draw.randrange(1, 7))) for _ in range(120)]
    expected = slow_merges(Counter(word + " " for word in words), 30)
    size = 4 + 5 + len(expected)
    assert merges(train_tokenizer(Bpe(size=size), words)) == expected


def test_stops_at_frequency_one_and_says_the_size():
    words = ["abab", "ab", "cd"]  # (a, b) is seen three times, ("ab", " ") twice, everything else once
    tokenizer = train_tokenizer(Bpe(size=100_000), words)
    assert [a + b for a, b in merges(tokenizer)] == ["ab", "ab "]
    assert (tokenizer.size, tokenizer.sample["size_requested"]) == (11, 100_000)
    assert tokenizer.notes()[0].startswith("a vocabulary of 11 pieces, not 100,000: no other pair is frequent")
    assert train_tokenizer(Bpe(size=11), words).notes() == []


def test_too_many_characters_for_the_size():
    with pytest.raises(RegardError, match=r"write text\.size=31 or more, or text\.kind=byte_bpe"):
        train_tokenizer(Bpe(size=10), ["abcdefghijklmnopqrstuvwxyz"] * 2)


def test_a_known_character_is_known_at_the_end_of_a_word_too():
    tokenizer = train_tokenizer(Bpe(size=10), ["xa xa ya ya"])  # x and y only begin words here
    assert tokenizer.unk not in tokenizer.encode("ax ay")
    assert tokenizer.decode(tokenizer.encode("ax ay")) == "ax ay"


def test_unknown_characters_keep_the_words_apart():
    tokenizer = train_tokenizer(Bpe(size=40), corpus.ENGLISH)
    assert tokenizer.decode(tokenizer.encode("a ☃ dog☃ in")) == "a <unk> dog<unk> in"


def test_bytes_round_trip_anything():
    tokenizer = train_tokenizer(ByteBpe(size=300), corpus.ENGLISH)
    for text in ("  two  spaces ", "我爱中国 ☃\n\ttab", "\x00nul", "e\u0301"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("☃")) == 3  # as many as UTF-8 bytes


def small_gpt2(folder):
    """A vocabulary in GPT-2's two files: 256 bytes, three merges, the end of text."""
    from tokenizers.pre_tokenizers import ByteLevel

    pieces = [*sorted(ByteLevel.alphabet()), "Ġt", "he", "Ġthe", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({p: i for i, p in enumerate(pieces)}), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\nĠ t\nh e\nĠt he\n", encoding="utf-8")
    return folder / "vocab.json", folder / "merges.txt"


VARIED = [
    "Hello world, the end.",
    "  two  spaces, and\ttabs\n\nnewlines ",
    "don't you're I'll we've she'd it's 'quoted'",
    "naïve café ß Ǆ 我爱中国 こんにちは 🙂👩‍👩‍👧",
    "12345 6,789.00 $5 50% #tag @name a_b",
    "x" * 300,
    "",
    "\u200b\x00zero \u00a0 hard",
    "e\u0301 ﬁ ① Å",
]


def compare_with_transformers(vocab, merges_file, texts):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2Tokenizer(vocab=str(vocab), merges=str(merges_file))
    ours = from_gpt2(vocab, merges_file)
    assert ours.encode_batch(texts) == theirs(texts)["input_ids"]
    assert [ours.decode(ours.encode(text)) for text in texts] == texts
    return ours


def test_gpt2_files_small(tmp_path):
    ours = compare_with_transformers(*small_gpt2(tmp_path), VARIED)
    assert ours.eos == ours.bos == ours.pad == 259
    assert ours.eos not in ours.encode("the <|endoftext|> of text")
    assert ours.tokens(ours.encode("in the")) == ["i", "n", "Ġthe"]


def test_gpt2_own_vocabulary():
    vocab, merges_file = corpus.real("tokenizers/gpt2/vocab.json"), corpus.real("tokenizers/gpt2/merges.txt")
    lines = corpus.real_lines("multi30k/val.en.gz") + corpus.real_lines("multi30k/val.de.gz")[:300]
    ours = compare_with_transformers(vocab, merges_file, VARIED + lines)
    assert ours.encode("Hello world") == [15496, 995]


def test_gpt2_wrong_files(tmp_path):
    vocab, merges_file = small_gpt2(tmp_path)
    (tmp_path / "short.txt").write_text("h e l\n")
    (tmp_path / "other.txt").write_text("q z\n")
    (tmp_path / "bad.json").write_text('{"a": ')
    for pair in (
        (vocab, tmp_path / "short.txt"),
        (vocab, tmp_path / "other.txt"),
        (tmp_path / "bad.json", merges_file),
        (tmp_path / "none.json", merges_file),
    ):
        with pytest.raises(RegardError, match=r"json|txt"):
            from_gpt2(*pair)
