"""What outputs must begin with, and what must appear in them: as text, encoded, and checked before any search."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, TypeVar

from regard.data.readers import lines
from regard.decoding import Feed, Symbols
from regard.decoding.contract import NO_SEAMS, Asked, Seams, Words
from regard.decoding.phrases import impossible
from regard.errors import RegardError
from regard.text import Tokenizer
from regard.text.normaliser import CJK
from regard.text.piece_formats import ByteFormat

T = TypeVar("T")
MARKS = ".,!?;:"  # that stand at the end of a word, and may be in one piece with it
UNSPACED = re.compile(f"[{CJK}\u0e00-\u109f\u1780-\u17ff]")  # and scripts from Thai to Burmese, and Khmer


class Asking(TypedDict, total=False):
    """What is asked of the outputs of some lines."""

    prefixes: Sequence[str] | None  # for each line how its output must begin; empty: nothing is asked
    phrases: Sequence[Sequence[str]] | None  # for each line what must appear in its output; needs a beam
    files: Mapping[str, str]  # where prefixes and phrases were read, for messages


class Demand(NamedTuple):
    """What is asked of one line: text, and its ids in the same order."""

    prefix: str = ""
    phrases: tuple[str, ...] = ()
    prefix_ids: tuple[int, ...] = ()
    phrase_ids: tuple[Words, ...] = ()
    ways: tuple[tuple[Words, ...], ...] = ()  # for each phrase, ids of others that hold it


NOTHING_ASKED = Demand()


class Constraints:
    """What is asked of each line; `files` says where prefixes and phrases were read, `before` lines came earlier."""

    seams: Seams = NO_SEAMS

    def __init__(self, demands: list[Demand], files: Mapping[str, str], before: int) -> None:
        self.demands, self.files, self.before = demands, files, before

    @staticmethod
    def of(options: Asking, before: int, count: int, tokenizer: Tokenizer) -> "Constraints":
        """From what `translate` was told, for so many lines; encoded as whole words of the target."""
        prefixes, phrases = options.get("prefixes"), options.get("phrases")
        given = [[""] * count if prefixes is None else prefixes, [()] * count if phrases is None else phrases]
        for name, each in zip(("prefixes", "phrases"), given, strict=True):
            if len(each) != count:
                raise RegardError(f"{count} lines, but {name} for {len(each)}; give one for each, empty for nothing")
        if any(isinstance(asked, str) for asked in given[1]):
            raise RegardError("prefixes takes a string for each line, and phrases a list of strings for each line")
        if not any(given[0]) and not any(given[1]):
            return Constraints([NOTHING_ASKED] * count, options.get("files") or {}, before)
        starts = tokenizer.encode_batch(prefixes) if prefixes else [[]] * count
        demands = []
        for prefix, asked, start in zip(*given, starts, strict=True):
            texts = tuple(dict.fromkeys(text for text in asked if text.strip()))
            said = [_ways(tokenizer, text) for text in texts]
            ids, ways = tuple(first for first, *_ in said), tuple(tuple(others) for _, *others in said)
            demands.append(Demand(prefix, texts, tuple(start), ids, ways))
        made = Constraints(demands, options.get("files") or {}, before)
        if any(demand.phrases for demand in demands):
            made.seams = seams(tokenizer)
        made._check_words(tokenizer)
        return made

    def added(self, feed: Feed, rows: Sequence[int]) -> Feed:
        """The feed of these rows, with what is asked of each."""
        own = [self.demands[row] for row in rows]
        prefixes, phrases = [each.prefix_ids for each in own], [each.phrase_ids for each in own]
        return replace(feed, prefixes=prefixes, phrases=phrases, ways=[each.ways for each in own], seams=self.seams)

    def check(self, limits: Sequence[int], symbols: Symbols) -> None:
        """An error names what cannot be met if output n has at most `limits[n]` pieces; 0: of an empty line."""
        for n, (demand, limit) in enumerate(zip(self.demands, limits, strict=True)):
            if demand is NOTHING_ASKED:
                continue
            if demand.prefix_ids and len(demand.prefix_ids) > limit:
                raise self._unmet(n, "prefixes", demand.prefix, _no_room(len(demand.prefix_ids), limit))
            if demand.phrase_ids and limit == 0:
                raise self._unmet(n, "phrases", demand.phrases[0], _no_room(len(demand.phrase_ids[0]), limit))
            if bad := impossible(
                Asked(limit, 0, demand.prefix_ids, demand.phrase_ids, demand.ways), symbols, self.seams
            ):
                raise self._unmet(n, "phrases", demand.phrases[bad[0]], bad[1])

    def _check_words(self, tokenizer: Tokenizer) -> None:
        for n, demand in enumerate(self.demands):
            if tokenizer.unk in demand.prefix_ids:
                raise self._unmet(n, "prefixes", demand.prefix, "the vocabulary has no pieces for it")
            for text, ids in zip(demand.phrases, demand.phrase_ids, strict=True):
                if tokenizer.unk in ids:
                    raise self._unmet(n, "phrases", text, "the vocabulary has no pieces for it")

    def _unmet(self, row: int, name: str, text: str, reason: str) -> RegardError:
        what = {"prefixes": "the output cannot begin with", "phrases": "the output cannot hold"}[name]
        return RegardError(f"{self.files.get(name, name)}, line {self.before + row + 1}: {what} {text!r}: {reason}")


def _no_room(pieces: int, limit: int) -> str:
    return f"it has {pieces} pieces, and there is room for {limit}" if limit else "the line of the input is empty"


def _ways(tokenizer: Tokenizer, phrase: str) -> list[Words]:
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
def seams(tokenizer: Tokenizer) -> Seams:
    """Where pieces of a vocabulary are in one word: two letters meet, or a letter comes right after a mark."""
    edges = list(enumerate(tokenizer.edges()))
    open_ = frozenset(i for i, (_, last) in edges if last and (last in MARKS or _letter(last, tokenizer.language)))
    joins = frozenset(i for i, (first, _) in edges if first and _letter(first, tokenizer.language))
    return Seams(open_, joins, frozenset(i for i, both in edges if any(both)) - open_)


def _letter(character: str, language: str) -> bool:
    """Whether words of this character have spaces between them; U+FFFD is a part of some character."""
    if character == "\ufffd":
        return not spaceless(language)
    return bool(character.isalnum() or unicodedata.category(character)[0] == "M") and not UNSPACED.match(character)


def spaceless(language: str) -> bool:
    """Whether sentences of a language follow each other without a space."""
    return language.lower().replace("_", "-").partition("-")[0] in ("zh", "zho", "cmn", "yue", "ja", "jpn")


@dataclass(frozen=True)
class Wanted:
    """Files with a line for each of the input: how its output must begin, and phrases with tabs between them."""

    prefixes: Path | None = None
    phrases: Path | None = None

    @property
    def paths(self) -> list[Path]:
        return [path for path in (self.prefixes, self.phrases) if path]

    @property
    def files(self) -> dict[str, str]:
        return {name: str(path) for name in ("prefixes", "phrases") if (path := getattr(self, name))}

    def beside(self, items: Iterator[T], name: str) -> Iterator[tuple[T, str, str]]:
        """Each item with its lines of the two files; `name` is what messages call the items."""
        both = _beside(_beside(items, self.prefixes, name), self.phrases, name)
        return ((item, prefix, phrases) for (item, prefix), phrases in both)

    def of(self, lines: Sequence[tuple[Any, str, str]]) -> "Asking":
        """What `translate` is told of these lines."""
        asking: Asking = {}
        if self.prefixes:
            asking["prefixes"] = [prefix for _, prefix, _ in lines]
        if self.phrases:
            asking["phrases"] = [phrases.split("\t") if phrases else [] for _, _, phrases in lines]
        return asking


NOTHING = Wanted()


def _beside(items: Iterator[T], path: Path | None, name: str) -> Iterator[tuple[T, str]]:
    if path is None:
        yield from ((item, "") for item in items)
        return
    found, number = lines(path), 0
    for number, item in enumerate(items, 1):
        line = next(found, None)
        if line is None:
            raise RegardError(
                f"{path} ends before line {number} of {name}; it needs a line for each, empty for nothing"
            )
        yield item, line
    if next(found, None) is not None:
        raise RegardError(f"{path}, line {number + 1}: a line too many: {name} has {number}")
