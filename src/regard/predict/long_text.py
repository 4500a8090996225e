"""Lines longer than a model knows, cut into parts that fit: at sentence ends, else punctuation, spaces, characters.

A sentence goes by itself, as models were trained; smaller pieces are packed as long as they fit.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from regard.decoding import Beam, DecodingConfig, penalty
from regard.errors import RegardError
from regard.predict.constraints import spaceless
from regard.text.sentences import split_sentences

if TYPE_CHECKING:
    from regard.predict.translation import Options, Translation

LEVELS = [re.compile(r"[,;:–—)\]][\"'”’]?\s+|\s[–—-]\s|[，、；：]\s*"), re.compile(r"\s+"), re.compile(r".", re.DOTALL)]
PART = 40  # bits of a key below the number of the part

Size = Callable[[Sequence[str]], list[int]]  # how many pieces each text has


def cut(text: str, limit: int, size: Size) -> list[str]:
    """The text in parts of at most `limit` pieces each; nothing but spaces is lost."""
    return [part for sentence in split_sentences(text) for part in _fit(sentence, limit, size, LEVELS)]


def _split(text: str, ends: re.Pattern[str]) -> list[str]:
    """The text, cut after each match."""
    at = [0, *(match.end() for match in ends.finditer(text)), len(text)]
    return [text[a:b] for a, b in pairwise(at) if a < b]


def _fit(text: str, limit: int, size: Size, levels: list[re.Pattern[str]]) -> list[str]:
    text = text.strip()
    if not levels or size([text])[0] <= limit:
        return [text] if text else []
    pieces = _split(text, levels[0])
    packed, room = [""], limit
    for piece, count in zip(pieces, size(pieces), strict=True):
        if count > room and packed[-1]:
            packed.append("")
            room = limit
        packed[-1] += piece
        room -= count
    return [part for each in packed for part in _fit(each, limit, size, levels[1:])]


class Segments:
    """Lines as they are translated: first the beginning of each, or all of it, then what more there is of the long."""

    def __init__(self, lines: Sequence[str], limit: int, size: Size, language: str) -> None:
        sizes = size(lines)
        self.parts = [cut(line, limit, size) if sizes[n] > limit else [line] for n, line in enumerate(lines)]
        self.more = [(n, part) for n, parts in enumerate(self.parts) for part in range(1, len(parts))]
        self.order = [*((n, 0) for n in range(len(lines))), *self.more]
        self.join = "" if spaceless(language) else " "

    @property
    def lines(self) -> list[str]:
        return [self.parts[n][part] for n, part in self.order]

    def keys(self, before: int) -> list[int]:
        """Names of the parts, by which random draws are told apart, whatever else is in the text."""
        return [before + n + (part << PART) for n, part in self.order]

    def options(self, given: "Options") -> "Options":
        """What is asked of the parts: a prefix of the first."""
        for name in ("attention", "heads"):
            if given.get(name):
                raise RegardError(f"long lines in parts (segment) have no {name} as a whole; truncate or refuse them")
        told, count = given.get("progress"), len(self.parts)
        made: Options = {**given, "long": "translate"}
        if told is not None:
            made["progress"] = lambda what, done, of: told(what, min(done, count), count)
        if prefixes := given.get("prefixes"):
            made["prefixes"] = [*prefixes, *[""] * len(self.more)]
        if phrases := given.get("phrases"):
            for n, _ in self.more:
                if n < len(phrases) and any(text.strip() for text in phrases[n]):
                    where = f"line {given.get('before', 0) + n + 1}"
                    raise RegardError(f"{where} is translated in parts, of which none is known to hold its phrases")
            made["phrases"] = [*phrases, *[()] * len(self.more)]
        return made

    def joined(self, found: "list[list[Translation]]", decoding: DecodingConfig) -> "list[list[Translation]]":
        """For each line its outputs; of parts the best go together, then the second best, …"""
        whole = [[options] for options in found[: len(self.parts)]]
        for (n, _), options in zip(self.more, found[len(self.parts) :], strict=True):
            whole[n].append(options)
        return [self._line(parts, decoding) for parts in whole]

    def _line(self, parts: "list[list[Translation]]", decoding: DecodingConfig) -> "list[Translation]":
        if len(parts) == 1:
            return parts[0]
        made = []
        for each in zip(*parts, strict=False):
            total = sum(t.log_probability for t in each)
            words = sum(len(t.tokens) + 1 for t in each)
            score = total / penalty(words, decoding) if isinstance(decoding, Beam) else total
            text = self.join.join(t.text for t in each if t.text)
            tokens = [token for t in each for token in t.tokens]
            made.append(replace(each[0], text=text, score=score, log_probability=total, tokens=tokens))
        return sorted(made, key=lambda t: -t.score)
