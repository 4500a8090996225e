"""The sample a vocabulary is trained on, its record, and that training is repeatable."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from regard import config
from regard.errors import RegardError
from regard.text import Bpe, ByteBpe, Char, TextConfig, Tokenizer, Unigram, Word, WordPiece, train_tokenizer
from regard.text.config import BertPieces
from regard.text.training import sample_lines
from tests.text import corpus

CONFIGS = [Word(), Char(), Bpe(size=150), ByteBpe(size=320), WordPiece(size=150), Unigram(size=150)]


def test_everything_is_used_when_it_fits():
    lines = [f"line {i}" for i in range(100)]
    kept, counts = sample_lines(iter(lines), 100, 10_000)
    assert kept == lines
    assert counts == {"lines_seen": 100, "bytes_seen": 690, "lines_used": 100, "bytes_used": 690}


def test_limits_hold_and_the_order_stays():
    lines = [f"{i:04}" for i in range(5000)]
    kept, counts = sample_lines(lines, 50, 10**9)
    assert len(kept) == 50
    assert kept == sorted(kept)
    kept, counts = sample_lines(lines, 10**9, 403)  # four bytes each
    assert (len(kept), counts["bytes_used"], counts["lines_seen"]) == (100, 400, 5000)
    assert sample_lines(lines, 50, 10**9) == sample_lines(iter(lines), 50, 10**9)
    assert sample_lines(["é" * 10], 5, 19)[0] == []  # twenty bytes


def test_the_sample_is_uniform():
    hits: Counter = Counter()
    for seed in range(400):
        hits.update(int(line) // 20 for line in sample_lines([str(i) for i in range(100)], 10, 10**9, seed)[0])
    assert all(abs(hits[part] - 800) < 120 for part in range(5))  # 800 ± 4.7 standard deviations


def test_the_record_is_kept():
    tokenizer = train_tokenizer(Bpe(size=60, sample_lines=6), {"en": corpus.ENGLISH, "de": corpus.GERMAN})
    assert tokenizer.sample["lines_seen"] == 28
    assert tokenizer.sample["lines_used"] == 6


@pytest.mark.parametrize("choice", CONFIGS, ids=lambda c: c.kind)
def test_training_twice_gives_the_same_file(choice):
    lines = corpus.ENGLISH + corpus.CHINESE + corpus.invented(200, seed=1)
    assert train_tokenizer(choice, lines).dumps() == train_tokenizer(choice, lines).dumps()


def test_another_process_gives_the_same_file():
    """Hash tables in `tokenizers` are ordered anew in every process."""
    code = (
        "from tests.text.test_training import CONFIGS, corpus, train_tokenizer\n"
        "print([train_tokenizer(c, corpus.invented(300, 1) + corpus.ENGLISH).fingerprint for c in CONFIGS])"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
    run = [sys.executable, "-c", code]
    first, second = (subprocess.check_output(run, env=environment, cwd=root) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("kind", [Bpe, ByteBpe, WordPiece, BertPieces])
def test_merging_stops_where_no_pair_is_left(kind, tmp_path):
    tokenizer = train_tokenizer(kind(size=5000), corpus.ENGLISH)
    assert tokenizer.size < 5000
    assert train_tokenizer(kind(size=tokenizer.size), corpus.ENGLISH).pieces == tokenizer.pieces
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").notes() == tokenizer.notes() != []


def test_a_unigram_size_the_text_does_not_allow():
    with pytest.raises(RegardError, match=r"the text allows at most (\d+) pieces; write text\.size=\1 or less") as e:
        train_tokenizer(Unigram(size=5000), corpus.ENGLISH)
    allowed = int(str(e.value).split("size=")[1].split()[0])
    assert train_tokenizer(Unigram(size=allowed), corpus.ENGLISH).size == allowed


@pytest.mark.parametrize("kind", [Bpe, WordPiece, Unigram])
def test_more_characters_than_pieces(kind):
    """The least size that is named works, and one less does not; Chinese has thousands of characters."""
    lines = ["".join(chr(0x4E00 + (7 * n + i) % 400) for i in range(20)) + f" {n}" for n in range(200)]
    with pytest.raises(RegardError, match=r"200 pieces are too few; write text\.size=(\d+) or more") as e:
        train_tokenizer(kind(size=200), lines)
    least = int(str(e.value).split("size=")[1].split()[0])
    assert train_tokenizer(kind(size=least), lines).size == least
    with pytest.raises(RegardError, match=f"size={least} or more"):
        train_tokenizer(kind(size=least - 1), lines)


def test_no_text():
    with pytest.raises(RegardError, match="no text"):
        train_tokenizer(Bpe(), ["", "  ", "\t"])


def test_configs_are_read_and_checked():
    from dataclasses import dataclass

    @dataclass(frozen=True)
    class Holder:
        text: TextConfig

    made = config.parse_config(Holder, {"text": {"kind": "bpe", "size": 99, "dropout": 0.1}}).text
    assert made == Bpe(size=99, dropout=0.1)
    for wrong, part in [
        ({"kind": "bpe", "size": 3}, "at least 5"),
        ({"kind": "bpe", "dropout": 1.0}, "below 1"),
        ({"kind": "bpe", "siz": 3}, "did you mean size"),
        ({"kind": "sentencepiece"}, "path must name"),
        ({"kind": "unigram", "alpha": -1}, "alpha must be"),
        ({"kind": "unigram", "coverage": 0}, "coverage must be above 0"),
        ({"kind": "char", "min_frequency": 0}, "min_frequency must be at least 1"),
        ({"kind": "bpee"}, "did you mean bpe"),
    ]:
        with pytest.raises(RegardError, match=part):
            config.parse_config(Holder, {"text": wrong})
