"""Vocabularies from text: a bounded sample of the lines, then the trainer of the kind. Knows no corpus files.

Equal lines give equal vocabularies, byte for byte: where `tokenizers` numbers pieces by the order of a hash
table (`##` forms), the order is settled here.
"""

import heapq
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from tokenizers import Tokenizer as Inner
from tokenizers import models, normalizers, pre_tokenizers, trainers

from regard.errors import RegardError
from regard.text import config as kinds
from regard.text.normaliser import TextNormaliser
from regard.text.piece_formats import SPECIALS, special_piece
from regard.text.tokenizer import PIECE_FORMATS, Tokenizer
from regard.text.unigram import too_few_pieces, train_unigram

UNK = special_piece("<unk>")
TRAINER_VERSION = 2  # another one makes other pieces of the same text: cached vocabularies are not used
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
    piece_format = PIECE_FORMATS[config.kind](**format_options)
    groups = lines if isinstance(lines, Mapping) else {language: lines}

    texts, record = [], dict[str, int]()
    for name, group in groups.items():
        most_lines, most_bytes = config.sample_lines // len(groups), config.sample_bytes // len(groups)
        kept, counts = sample_lines(group, max(most_lines, 1), max(most_bytes, 1))
        view = replace(normaliser, language=name)
        texts += [text for line in kept if (text := piece_format.prepare(view.apply(line)))]
        record = {name: record.get(name, 0) + count for name, count in counts.items()}
    if not texts:
        raise RegardError("there is no text to train a vocabulary on: every line is empty")

    names = [*SPECIALS, *specials]
    inner = _TRAINERS[type(config)](config, texts, [special_piece(name) for name in names])
    special = {"pad": 0, "unk": 1, "bos": 2, "eos": 3}
    special |= {name.strip("<>[]|"): i for i, name in enumerate(names) if name in specials}
    document, sample = json.loads(inner.to_str()), record | _size_requested(config, inner)
    return Tokenizer(document, config.kind, normaliser, special, format_options, config.sampling, sample)


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
    return _train(inner, texts, config.size, specials, config.min_frequency)


def _byte_bpe(config: kinds.ByteBpe, texts: list[str], specials: list[str]) -> Inner:
    inner = Inner(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return _train(inner, texts, config.size, specials, config.min_frequency, alphabet)


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
    inner = _train(inner, cut, config.size, specials, config.min_frequency)
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
    inner = _wordpiece(wordpiece, texts, list(BERT_SPECIALS))
    vocabulary, sample = inner.get_vocab(), counts | _size_requested(wordpiece, inner)
    return bert_tokenizer(sorted(vocabulary, key=vocabulary.__getitem__), config.lower, "the vocabulary", sample)


def _size_requested(config: kinds.TextConfig, inner: Inner) -> dict[str, int]:
    """The size of the recipe, where merging stopped below it: it is recorded in the tokenizer."""
    if not isinstance(config, kinds.Bpe | kinds.ByteBpe | kinds.WordPiece) or inner.get_vocab_size() >= config.size:
        return {}
    return {"size_requested": config.size}


def _unigram(config: kinds.Unigram, texts: list[str], specials: list[str]) -> Inner:
    pieces = train_unigram(list(_short(texts)), config.size, len(specials), config.coverage)
    inner = Inner(models.Unigram([(name, 0.0) for name in specials] + pieces, specials.index(UNK), False))
    inner.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")
    return inner


_TRAINERS: dict[type, Callable[..., Inner]] = {
    kinds.Word: _word,
    kinds.Char: _char,
    kinds.Bpe: _bpe,
    kinds.ByteBpe: _byte_bpe,
    kinds.WordPiece: _wordpiece,
    kinds.Unigram: _unigram,
}


def _train(
    inner: Inner, texts: Iterable[str], size: int, specials: list[str], least: int, alphabet: Sequence[str] = ()
) -> Inner:
    """Pairs merged until the size is reached, or until no pair is seen `least` times."""
    settings = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=least,
        special_tokens=specials,
        initial_alphabet=list(alphabet),
        show_progress=False,
    )
    inner.train_from_iterator(_short(texts), settings)
    document = json.loads(inner.to_str())
    document["added_tokens"] = []  # else the names of special tokens would be found in text
    trained = Inner.from_str(json.dumps(document))
    if trained.get_vocab_size() > size:
        raise too_few_pieces(size, trained.get_vocab_size())
    return trained


def _short(texts: Iterable[str]) -> Iterator[str]:
    return (_TOO_LONG.sub(r"\1 ", text) if len(text) > LONGEST_WORD else text for text in texts)
