"""Long lines as segments that fit a model: split at sentence ends, else punctuation, spaces, characters.

A sentence is a segment of its own, as models were trained; smaller parts are packed as long as they fit.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.decoding import Beam, DecodingConfig, length_penalty
from regard.errors import RegardError
from regard.examples.long_text import Shortened
from regard.examples.windows import word_windows
from regard.nn.record import AttentionRecorder
from regard.predict.constraints import spaceless
from regard.predict.options import TranslationOptions
from regard.text.sentences import split_sentences

if TYPE_CHECKING:
    from regard.predict.translation import Translation

Read = Callable[[list[int], AttentionRecorder], int]  # of tokens; gives how many special ones stand before them
LEVELS = [re.compile(r"[,;:–—)\]][\"'”’]?\s+|\s[–—-]\s|[，、；：]\s*"), re.compile(r"\s+"), re.compile(r".", re.DOTALL)]
PART = 40  # bits of a key below the number of the part

Size = Callable[[Sequence[str]], list[int]]  # how many pieces each text has


def split_text(text: str, limit: int, size: Size) -> list[str]:
    """The text in parts of at most `limit` pieces each; nothing but spaces is lost."""
    return [part for sentence in split_sentences(text) for part in _fit(sentence, limit, size, LEVELS)]


@torch.inference_mode()
def attention_received(read: Read, passages: Sequence[list[int]], room: int) -> np.ndarray:
    """How much attention a token of each passage receives in the mean, where 1 is what all receive in the mean.

    One pass over the passages, as many at once as have room; the mean over layers, heads and queries.
    """
    scores = np.zeros(len(passages))
    for first, end in word_windows(list(map(len, passages)), room, 0):
        record = AttentionRecorder(("encoder", "decoder"))
        ids = [i for passage in passages[first:end] for i in passage][:room]
        before = read(ids, record)
        layers = [weights for role in record.roles for weights in record.layers(role)]  # each [1, H, Q, K]
        if not layers or any(weights.shape[-1] < before + len(ids) for weights in layers):
            raise RegardError("the model has no self-attention on tokens by which passages are chosen; write by: tfidf")
        received = torch.stack([weights[0].float().mean((0, 1))[before:][: len(ids)] for weights in layers]).mean(0)
        received = (received / received.mean()).cpu()  # [K]
        at = 0
        for n in range(first, end):
            own = received[at : at + len(passages[n])]
            scores[n], at = float(own.mean()) if len(own) else 0.0, at + len(passages[n])
    return scores


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


class LineSegments:
    """Lines as they are translated: first the first segment of each, or all of it, then the others of long lines."""

    def __init__(self, lines: Sequence[str], limit: int, size: Size, language: str) -> None:
        self.sizes = sizes = size(lines)
        self.parts = [split_text(line, limit, size) if sizes[n] > limit else [line] for n, line in enumerate(lines)]
        self.more = [(n, part) for n, parts in enumerate(self.parts) for part in range(1, len(parts))]
        self.order = [*((n, 0) for n in range(len(lines))), *self.more]
        self.separator = "" if spaceless(language) else " "

    @property
    def shortened(self) -> dict[int, Shortened]:
        """Of the lines that are in parts what was done with them."""
        cut = [(n, len(parts)) for n, parts in enumerate(self.parts) if len(parts) > 1]
        return {n: Shortened("segments", self.sizes[n], 0, parts) for n, parts in cut}

    @property
    def texts(self) -> list[str]:
        return [self.parts[n][part] for n, part in self.order]

    def keys(self, before: int) -> list[int]:
        """Keys of the segments, by which random draws are told apart, whatever else is in the text."""
        return [before + n + (part << PART) for n, part in self.order]

    def options(self, options: TranslationOptions) -> TranslationOptions:
        """The options of the segments: a prefix belongs to the first of a line."""
        for name, value in (("attention", options.attention), ("trees", options.trees)):
            if value:
                raise RegardError(f"long lines in parts (segment) have no {name} as a whole; truncate or refuse them")
        progress, count = options.progress, len(self.parts)
        if progress is not None:
            capped = lambda what, done, of: progress(what, min(done, count), count)  # noqa: E731
            options = replace(options, progress=capped)
        if options.prefixes:
            options = replace(options, prefixes=[*options.prefixes, *[""] * len(self.more)])
        if phrases := options.phrases:
            for n, _ in self.more:
                if n < len(phrases) and any(text.strip() for text in phrases[n]):
                    where = f"line {options.before + n + 1}"
                    raise RegardError(f"{where} is translated in parts, of which none is known to hold its phrases")
            options = replace(options, phrases=[*phrases, *[()] * len(self.more)])
        return options

    def join(self, translations: "list[list[Translation]]", decoding: DecodingConfig) -> "list[list[Translation]]":
        """For each line its outputs; of segments the best go together, then the second best, …"""
        by_line = [[best] for best in translations[: len(self.parts)]]
        for (n, _), best in zip(self.more, translations[len(self.parts) :], strict=True):
            by_line[n].append(best)
        return [self._join_line(parts, decoding) for parts in by_line]

    def _join_line(self, parts: "list[list[Translation]]", decoding: DecodingConfig) -> "list[Translation]":
        if len(parts) == 1:
            return parts[0]
        joined = []
        for each in zip(*parts, strict=False):
            total = sum(t.log_probability for t in each)
            length = sum(len(t.tokens) + 1 for t in each)
            score = total / length_penalty(length, decoding) if isinstance(decoding, Beam) else total
            text = self.separator.join(t.text for t in each if t.text)
            tokens = [token for t in each for token in t.tokens]
            joined.append(replace(each[0], text=text, score=score, log_probability=total, tokens=tokens))
        return sorted(joined, key=lambda t: -t.score)
