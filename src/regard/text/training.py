"""Vocabularies from text: a bounded sample of the lines, then the trainer of the kind. Knows no corpus files.

Equal lines give equal vocabularies, byte for byte: where `tokenizers` numbers pieces by the order of a hash
table (`##` forms, Unigram's rare characters), the order is settled here.
"""

import heapq
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from tokenizers import Tokenizer as Inner
from tokenizers import models, normalizers, pre_tokenizers, trainers

from regard.errors import RegardError
from regard.text import config as kinds
from regard.text.normaliser import TextNormaliser
from regard.text.piece_formats import SPECIALS, special_piece
from regard.text.tokenizer import PIECE_FORMATS, Tokenizer

UNK = special_piece("<unk>")
LONGEST_WORD = 256  # longer ones are cut while training: a merge looks at the whole word
_TOO_LONG = re.compile(rf"(\S{{{LONGEST_WORD}}})(?=\S)")


def train_tokenizer(
    config: kinds.TextConfig,
    lines: Iterable[str] | Mapping[str, Iterable[str]],
    language: str = "en",
    side: str = "source",
    specials: Sequence[str] = (),
) -> Tokenizer:
    """A vocabulary for the lines, or for the lines of several languages: {"en": …, "de": …}.

    `specials` are tokens beside <pad> <unk> <s> </s>: "<mask>" is found again as `tokenizer.special["mask"]`.
    """
    if isinstance(config, kinds.SentencePiece):
        from regard.text.pretrained import from_sentencepiece

        normaliser = TextNormaliser(config.normalise, config.moses, config.lower, fold=config.moses, language=language)
        return from_sentencepiece((side == "target" and config.target_path) or config.path, normaliser)
    if isinstance(config, kinds.Marian):
        from regard.text.marian import from_folder

        return from_folder(config.path, side, language)
    if isinstance(config, kinds.BertPieces):
        return _bert(config, chain.from_iterable(lines.values()) if isinstance(lines, Mapping) else lines)
    fold = config.moses or not isinstance(config, kinds.Char | kinds.ByteBpe)
    normaliser = TextNormaliser(config.normalise, config.moses, config.lower, fold, language)
    cut: str = config.segmenter if isinstance(config, kinds.Word) else "none"
    format_options = {cut: True} if cut != "none" else {}
    form = config.pieces or config.kind
    piece_format = PIECE_FORMATS[form](**format_options)
    groups = lines if isinstance(lines, Mapping) else {language: lines}

    texts, record = [], Counter[str]()
    for name, group in groups.items():
        most_lines, most_bytes = config.sample_lines // len(groups), config.sample_bytes // len(groups)
        kept, counts = sample_lines(group, max(most_lines, 1), max(most_bytes, 1))
        view = replace(normaliser, language=name)
        texts += [text for line in kept if (text := piece_format.prepare(view.apply(line)))]
        record.update(counts)
    if not texts:
        raise RegardError("there is no text to train a vocabulary on: every line is empty")

    names = [*SPECIALS, *specials]
    pieces = [special_piece(name) for name in names]
    inner = config.train(texts, pieces) if config.pieces else _TRAINERS[type(config)](config, texts, pieces)
    special = {"pad": 0, "unk": 1, "bos": 2, "eos": 3}
    special |= {name.strip("<>[]|"): i for i, name in enumerate(names) if name in specials}
    document = json.loads(inner.to_str())
    return Tokenizer(
        document, config.pieces or config.kind, normaliser, special, format_options, config.sampling, dict(record)
    )


def sample_lines(
    lines: Iterable[str], most_lines: int, most_bytes: int, seed: int = 0
) -> tuple[list[str], dict[str, int]]:
    """A uniform sample of a stream within both limits, in the stream's order, and what was seen and used.

    Every line draws a number; the lines with the smallest numbers stay. Memory is bounded by what stays.
    """
    draw = random.Random(seed).random
    heap: list[tuple[float, int, str, int]] = []  # (-number, position, line, bytes)
    seen = seen_bytes = used_bytes = 0
    limit = 1.0  # the smallest number that was thrown out
    for line in lines:
        size = len(line) if line.isascii() else len(line.encode())
        number = draw()
        if number < limit and size <= most_bytes:
            heapq.heappush(heap, (-number, seen, line, size))
            used_bytes += size
            while len(heap) > most_lines or used_bytes > most_bytes:
                out = heapq.heappop(heap)
                used_bytes -= out[3]
                limit = -out[0]
        seen += 1
        seen_bytes += size
    kept = [line for _, _, line, _ in sorted(heap, key=lambda item: item[1])]
    counts = {"lines_seen": seen, "bytes_seen": seen_bytes, "lines_used": len(kept), "bytes_used": used_bytes}
    return kept, counts


# --- one trainer for each kind


def _by_frequency(items: Iterable[str], least: int, most: int | None = None) -> list[str]:
    counts = Counter(items)
    frequent = [item for item in counts if counts[item] >= least]
    return sorted(frequent, key=lambda item: (-counts[item], item))[:most]


def _numbered(pieces: Iterable[str]) -> dict[str, int]:
    return {piece: i for i, piece in enumerate(pieces)}


def _word(config: kinds.Word, texts: list[str], specials: list[str]) -> Inner:
    items = (word for text in texts for word in text.split(" ") if word != "<unk>")  # what text calls unknown is it
    words = _by_frequency(items, config.min_frequency, config.size - len(specials))
    inner = Inner(models.WordLevel(_numbered([*specials, *words]), unk_token=UNK))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return inner


def _char(config: kinds.Char, texts: list[str], specials: list[str]) -> Inner:
    characters = _by_frequency((c for text in texts for c in text), config.min_frequency)
    return Inner(models.BPE(_numbered([*specials, *characters]), [], unk_token=UNK))


def _bpe(config: kinds.Bpe, texts: list[str], specials: list[str]) -> Inner:
    inner = Inner(models.BPE(unk_token=UNK))
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return _train(inner, texts, trainers.BpeTrainer, config.size, specials, min_frequency=config.min_frequency)


def _byte_bpe(config: kinds.ByteBpe, texts: list[str], specials: list[str]) -> Inner:
    inner = Inner(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    options: dict[str, Any] = {"min_frequency": config.min_frequency, "initial_alphabet": alphabet}
    return _train(inner, texts, trainers.BpeTrainer, config.size, specials, **options)


class _Continuations(dict[int, int]):
    """Characters inside a word → private-use characters, numbered in the order of their first use."""

    def __missing__(self, character: int) -> int:
        self[character] = 0xF0000 + len(self)
        return self[character]


def _wordpiece(config: kinds.WordPiece, texts: list[str], specials: list[str]) -> Inner:
    # `tokenizers` numbers the `##x` alphabet in hash order, and ties between merges follow the numbers.
    table = _Continuations()
    usable = ([word for word in text.split(" ") if word[0] < "\U000f0000"] for text in texts)
    cut = (" ".join(word[0] + word[1:].translate(table) for word in words) for words in usable)
    inner = Inner(models.BPE(unk_token=UNK))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner = _train(inner, cut, trainers.BpeTrainer, config.size, specials, min_frequency=config.min_frequency)
    back = {stand_in: character for character, stand_in in table.items()}
    vocabulary = inner.get_vocab()
    pieces = [
        ("##" if piece[0] >= "\U000f0000" else "") + piece.translate(back)
        for piece in sorted(vocabulary, key=vocabulary.__getitem__)
    ]
    wordpiece = Inner(models.WordPiece(_numbered(pieces), unk_token=UNK, max_input_chars_per_word=100))
    wordpiece.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return wordpiece


def _bert(config: kinds.BertPieces, lines: Iterable[str]) -> Tokenizer:
    """A vocab.txt that is there, or one of the lines as BERT will cut them."""
    from regard.text.pretrained import BERT_SPECIALS, bert_tokenizer, from_bert

    if config.path:
        return from_bert(config.vocabulary, config.lower)
    clean, cut = normalizers.BertNormalizer(lowercase=config.lower), pre_tokenizers.BertPreTokenizer()
    kept, counts = sample_lines(lines, config.sample_lines, config.sample_bytes)
    words = (" ".join(word for word, _ in cut.pre_tokenize_str(clean.normalize_str(line))) for line in kept)
    texts = [text for text in words if text]
    if not texts:
        raise RegardError("there is no text to train a vocabulary on: every line is empty")
    wordpiece = kinds.WordPiece(size=config.size, min_frequency=config.min_frequency)
    vocabulary = _wordpiece(wordpiece, texts, list(BERT_SPECIALS)).get_vocab()
    return bert_tokenizer(sorted(vocabulary, key=vocabulary.__getitem__), config.lower, "the vocabulary", counts)


def _unigram(config: kinds.Unigram, texts: list[str], specials: list[str]) -> Inner:
    inner = Inner(models.Unigram())
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")
    least = len(specials) + len(set().union(*_short(texts))) + 1  # of some texts the library does with one less
    if config.size < least - 1:
        raise _too_few(config.size, least)
    try:
        inner = _train(inner, texts, trainers.UnigramTrainer, config.size, specials, least, unk_token=UNK)
    except Exception as error:  # the library raises nothing more special
        if "not large enough" not in str(error):
            raise
        raise _too_few(config.size, least) from None
    document = json.loads(inner.to_str())
    pieces = document["model"]["vocab"][len(specials) :]
    # Characters that EM dropped are put back a little above the lowest score, spread by 1e-4 in hash order.
    lowest = min(score for _, score in pieces)
    window = lowest + 1e-4 * sum(len(piece) == 1 for piece, _ in pieces) + 1e-9
    settled = [(p, round(lowest if len(p) == 1 and score <= window else score, 8)) for p, score in pieces]
    settled.sort(key=lambda item: (-item[1], item[0]))
    document["model"]["vocab"] = document["model"]["vocab"][: len(specials)] + settled
    return Inner.from_str(json.dumps(document))


_TRAINERS: dict[type, Callable[..., Inner]] = {
    kinds.Word: _word,
    kinds.Char: _char,
    kinds.Bpe: _bpe,
    kinds.ByteBpe: _byte_bpe,
    kinds.WordPiece: _wordpiece,
    kinds.Unigram: _unigram,
}


def _train(
    inner: Inner, texts: Iterable[str], trainer: Any, size: int, specials: list[str], least: int = 0, **options: Any
) -> Inner:
    """A vocabulary of exactly this size, or a refusal that names the size that the text allows."""
    settings = trainer(vocab_size=size, special_tokens=specials, show_progress=False, **options)
    inner.train_from_iterator(_short(texts), settings)
    document = json.loads(inner.to_str())
    document["added_tokens"] = []  # else the names of special tokens would be found in text
    trained = Inner.from_str(json.dumps(document))
    reached = trained.get_vocab_size()
    if reached < size:
        raise RegardError(f"the text allows at most {reached} pieces; write text.size={reached} or less")
    if reached > size:
        raise _too_few(size, least or reached)
    return trained


def _short(texts: Iterable[str]) -> Iterator[str]:
    return (_TOO_LONG.sub(r"\1 ", text) if len(text) > LONGEST_WORD else text for text in texts)


def _too_few(size: int, least: int) -> RegardError:
    return RegardError(
        f"the text has so many different characters that {size} pieces are too few; "
        f"write text.size={least} or more, or text.kind=byte_bpe"
    )
