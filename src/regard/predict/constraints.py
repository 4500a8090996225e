"""Constraints on outputs: what they must begin with, and what must appear in them; encoded and checked."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from regard.decoding import GenerationRequest, Symbols
from regard.decoding.constrained_beam import unsatisfiable
from regard.decoding.contract import WHOLE_WORDS, TokenIds, WordBoundaries
from regard.errors import RegardError
from regard.predict.options import TranslationOptions
from regard.text import Tokenizer
from regard.text.normaliser import CJK
from regard.text.piece_formats import ByteFormat

MARKS = ".,!?;:"  # that stand at the end of a word, and may be in one piece with it
UNSPACED = re.compile(f"[{CJK}\u0e00-\u109f\u1780-\u17ff]")  # and scripts from Thai to Burmese, and Khmer


class LineConstraints(NamedTuple):
    """The constraints on one line's output: text, and its ids in the same order."""

    prefix: str = ""
    phrases: tuple[str, ...] = ()
    prefix_ids: tuple[int, ...] = ()
    phrase_ids: tuple[TokenIds, ...] = ()
    variants: tuple[tuple[TokenIds, ...], ...] = ()  # for each phrase, ids of others that hold it


UNCONSTRAINED = LineConstraints()


class Constraints:
    """The constraints on each line's output; `files` says where they were read, `before` lines came earlier."""

    word_boundaries: WordBoundaries = WHOLE_WORDS

    def __init__(self, lines: list[LineConstraints], files: Mapping[str, str], before: int) -> None:
        self.lines, self.files, self.before = lines, files, before

    @staticmethod
    def of(options: TranslationOptions, count: int, tokenizer: Tokenizer) -> "Constraints":
        """Those of so many lines, encoded as whole words of the target."""
        files = options.files or {}
        prefixes = [""] * count if options.prefixes is None else options.prefixes
        phrases = [()] * count if options.phrases is None else options.phrases
        for name, size in (("prefixes", len(prefixes)), ("phrases", len(phrases))):
            if size != count:
                raise RegardError(f"{count} lines, but {name} for {size}; give one for each, empty for nothing")
        if any(isinstance(texts, str) for texts in phrases):
            raise RegardError("prefixes takes a string for each line, and phrases a list of strings for each line")
        if not any(prefixes) and not any(phrases):
            return Constraints([UNCONSTRAINED] * count, files, options.before)
        prefix_ids = tokenizer.encode_batch(prefixes) if options.prefixes else [[]] * count
        lines = []
        for prefix, texts, ids in zip(prefixes, phrases, prefix_ids, strict=True):
            distinct = tuple(dict.fromkeys(text for text in texts if text.strip()))
            variants = [_variants(tokenizer, text) for text in distinct]
            first, others = tuple(way[0] for way in variants), tuple(tuple(way[1:]) for way in variants)
            lines.append(LineConstraints(prefix, distinct, tuple(ids), first, others))
        constraints = Constraints(lines, files, options.before)
        if any(line.phrases for line in lines):
            constraints.word_boundaries = word_boundaries(tokenizer)
        constraints._check_vocabulary(tokenizer)
        return constraints

    def request(self, row: int, limit: int, key: int) -> GenerationRequest:
        """The output of a line, of at most so many pieces, with the line's constraints."""
        line = self.lines[row]
        return GenerationRequest(limit, key, line.prefix_ids, line.phrase_ids, line.variants)

    def check(self, limits: Sequence[int], symbols: Symbols) -> None:
        """Raise RegardError for what cannot be met if output n has at most `limits[n]` pieces; 0: of an empty line."""
        for n, (line, limit) in enumerate(zip(self.lines, limits, strict=True)):
            if line is UNCONSTRAINED:
                continue
            if line.prefix_ids and len(line.prefix_ids) > limit:
                raise self._unmet(n, "prefixes", line.prefix, _no_room(len(line.prefix_ids), limit))
            if line.phrase_ids and limit == 0:
                raise self._unmet(n, "phrases", line.phrases[0], _no_room(len(line.phrase_ids[0]), limit))
            if bad := unsatisfiable(self.request(n, limit, 0), symbols, self.word_boundaries):
                raise self._unmet(n, "phrases", line.phrases[bad[0]], bad[1])

    def _check_vocabulary(self, tokenizer: Tokenizer) -> None:
        for n, line in enumerate(self.lines):
            if tokenizer.unk in line.prefix_ids:
                raise self._unmet(n, "prefixes", line.prefix, "the vocabulary has no pieces for it")
            for text, ids in zip(line.phrases, line.phrase_ids, strict=True):
                if tokenizer.unk in ids:
                    raise self._unmet(n, "phrases", text, "the vocabulary has no pieces for it")

    def _unmet(self, row: int, name: str, text: str, reason: str) -> RegardError:
        cannot = f"begin with {text!r}" if name == "prefixes" else f"hold {text!r}"
        where = f"{self.files.get(name, name)}, line {self.before + row + 1}"
        return RegardError(f"{where}: the output cannot {cannot}: {reason}")


def _no_room(pieces: int, limit: int) -> str:
    return f"it has {pieces} pieces, and there is room for {limit}" if limit else "the line of the input is empty"


def _variants(tokenizer: Tokenizer, phrase: str) -> list[TokenIds]:
    """A phrase, and with each mark that may follow it, where a vocabulary has pieces of both; the shortest first."""
    alone = tuple(_inside(tokenizer, phrase))
    marks = MARKS if phrase[-1:].isalnum() and tokenizer.unk not in alone else ""
    marked = [tuple(_inside(tokenizer, phrase + mark)) for mark in marks]
    others = [way for way in marked if way[: len(alone)] != alone and tokenizer.unk not in way]
    return sorted(dict.fromkeys([alone, *others]), key=len)


def _inside(tokenizer: Tokenizer, phrase: str) -> list[int]:
    """A phrase as it stands within a text: bytes have a space before a word, except in a text without spaces."""
    if not isinstance(tokenizer.piece_format, ByteFormat) or spaceless(tokenizer.language):
        return tokenizer.encode(phrase)
    ids = tokenizer.encode(f". {phrase}")
    return [i for i, word in zip(ids, tokenizer.words(ids), strict=True) if word > 0]


@lru_cache(maxsize=4)
def word_boundaries(tokenizer: Tokenizer) -> WordBoundaries:
    """Where pieces of a vocabulary are in one word: two letters meet, or a letter comes right after a mark."""
    edges = list(enumerate(tokenizer.edges()))
    open_ = frozenset(i for i, (_, last) in edges if last and (last in MARKS or _letter(last, tokenizer.language)))
    joins = frozenset(i for i, (first, _) in edges if first and _letter(first, tokenizer.language))
    return WordBoundaries(open_, joins, frozenset(i for i, both in edges if any(both)) - open_)


def _letter(character: str, language: str) -> bool:
    """Whether words of this character have spaces between them; U+FFFD is a part of some character."""
    if character == "\ufffd":
        return not spaceless(language)
    return bool(character.isalnum() or unicodedata.category(character)[0] == "M") and not UNSPACED.match(character)


def spaceless(language: str) -> bool:
    """Whether sentences of a language follow each other without a space."""
    return language.lower().replace("_", "-").partition("-")[0] in ("zh", "zho", "cmn", "yue", "ja", "jpn")
