"""SentencePiece `.model` files: reading the protobuf, and SentencePiece's own normalisation of text.

The wire format of a `.model` is simple, so no package is needed to read it. Nothing here knows `tokenizers`.
"""

import base64
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from regard.errors import RegardError
from regard.io.files import read_bytes
from regard.text.piece_formats import PieceFormat, special_piece

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
UNIGRAM, BPE = 1, 2
MAX_PIECE = 4096  # bytes
MAX_KEY, MAX_REPLACEMENT, MAX_NODES = 64, 256, 1 << 21  # of a map of characters: bytes, bytes, and of its trie
CODE = re.compile(r">>.*?<<", re.DOTALL)
_BYTE_PIECE = re.compile(r" <0x([0-9A-F]{2})> ")


@dataclass
class SentencePieceModel:
    """The fields of a `.model` that encoding depends on."""

    pieces: list[tuple[str, float, int]] = field(default_factory=list)  # text, score, type
    model_type: int = UNIGRAM
    unk: int = 0
    bos: int = 1
    eos: int = 2
    pad: int = -1
    byte_fallback: bool = False
    suffix: bool = False  # the space mark ends a word instead of beginning it
    charsmap: bytes = b""
    dummy_prefix: bool = True
    remove_extra_spaces: bool = True
    escape: bool = True


def read_sentencepiece(path: str) -> SentencePieceModel:
    """A `.model` file, parsed."""
    return parse_sentencepiece(read_bytes(path), path)


def parse_sentencepiece(data: bytes, name: str) -> SentencePieceModel:
    """The bytes of a `.model`; `name` is for messages."""
    model = SentencePieceModel()
    try:
        for number, value in _fields(data):
            if number == 1:
                piece = dict(_fields(value))
                score = struct.unpack("<f", piece.get(2, bytes(4)))[0]
                if len(piece[1]) > MAX_PIECE:
                    raise ValueError("a piece as long as a book")
                model.pieces.append((piece[1].decode("utf-8"), score, piece.get(3, NORMAL)))
            elif number == 2:  # TrainerSpec
                _set(model, value, {3: "model_type", 24: "suffix", 35: "byte_fallback"})
                _set(model, value, {40: "unk", 41: "bos", 42: "eos", 43: "pad"})
            elif number == 3:  # NormalizerSpec
                _set(model, value, {2: "charsmap", 3: "dummy_prefix", 4: "remove_extra_spaces", 5: "escape"})
    except (ValueError, IndexError, KeyError, AttributeError, TypeError, OverflowError, struct.error):
        raise RegardError(f"{name}: not a SentencePiece .model, or cut short") from None
    if not model.pieces or model.model_type not in (UNIGRAM, BPE):
        raise RegardError(f"{name}: not a SentencePiece .model of type unigram or bpe")
    return model


def _set(model: SentencePieceModel, data: bytes, names: dict[int, str]) -> None:
    for number, value in _fields(data):
        if number in names:
            kind = type(getattr(model, names[number]))
            if kind is int and value >= 1 << 63:  # a negative int32, sign-extended
                value -= 1 << 64
            setattr(model, names[number], kind(value))


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(field number, value) of a protobuf message: https://protobuf.dev/programming-guides/encoding"""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        size, at = _varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
        if at + size > len(data):
            raise ValueError("cut short")
        yield tag >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("no number has so many bytes")


def read_charsmap(blob: bytes) -> dict[str, str]:
    """{text: replacement} of a precompiled_charsmap: a double-array trie of UTF-8 keys, then the values."""
    try:
        return _read_trie(blob) if blob else {}
    except (ValueError, IndexError, struct.error):  # not UTF-8, too
        raise RegardError("the tokenizer's map of characters (SentencePiece's charsmap) is damaged") from None


def _read_trie(blob: bytes) -> dict[str, str]:
    size = struct.unpack_from("<I", blob)[0]
    units = np.frombuffer(blob, np.uint32, size // 4, offset=4).astype(np.int64)
    values = blob[4 + size :]
    labels = np.where(units >> 31, 0, units & 255)  # bit 31: a leaf, with a value for label
    places = np.arange(len(units))
    bases = places ^ ((units >> 10) << ((units & (1 << 9)) >> 6))  # a child by label l stands at base ^ l
    leaf_follows = ((units >> 8) & 1).tolist()
    children: dict[int, list[int]] = {}
    inner = places[labels > 0]
    for parent, place in zip((inner ^ labels[inner]).tolist(), inner.tolist(), strict=True):
        children.setdefault(parent, []).append(place)
    label, base_of, unit = labels.tolist(), bases.tolist(), units.tolist()
    table: dict[str, str] = {}
    stack, visited = [(base_of[0], b"")], 0
    while stack:
        base, prefix = stack.pop()
        for place in children.get(base, ()):
            key = prefix + bytes([label[place]])
            stack.append((base_of[place], key))
            visited += 1
            if len(key) > MAX_KEY or visited > MAX_NODES:
                raise ValueError("a trie that does not end")
            if leaf_follows[place]:
                start = unit[base_of[place]] & ((1 << 31) - 1)
                end = values.index(0, start, start + MAX_REPLACEMENT)
                table[key.decode("utf-8")] = values[start:end].decode("utf-8")
    return table


def _one_of(characters: Iterable[str]) -> str:
    """A class of at least these characters; `re` is fast only when all astral ones are a single range."""
    some = set(characters)
    astral = "\U00010000-\U0010ffff" if max(some, default="") > "\uffff" else ""
    return "[" + "".join(re.escape(c) for c in sorted(some) if c <= "\uffff") + astral + "]"


class Replacer:
    """Characters replaced by SentencePiece's map. The map of NFKC has 225,000 entries: it is made once, when needed."""

    def __init__(self, charsmap: str, user_defined: tuple[str, ...]) -> None:
        self.charsmap = read_charsmap(base64.b64decode(charsmap))
        self.longest = max(map(len, self.charsmap), default=0)
        heads = [re.escape(text) for text in sorted(user_defined, key=len, reverse=True)]
        # A key of several characters counts where its second follows, or every letter would be looked at.
        several = [key for key in self.charsmap if len(key) > 1]
        for firsts, rest in ((self.charsmap, ""), (several, f"(?={_one_of(key[1] for key in several)})")):
            if starts := [key[0] for key in firsts if bool(rest) == (len(key) > 1)]:
                heads.append(_one_of(starts) + rest)
        self.heads = re.compile("|".join(heads))
        # Text without any of these cannot change; most text has none.
        self.changing = frozenset(key[min(len(key), 2) - 1] for key in self.charsmap)
        self.user_defined = frozenset(user_defined)

    def __call__(self, text: str) -> str:
        """The longest key at each place gives way to its replacement; symbols the user defined stay."""
        if self.changing.isdisjoint(text):
            return text
        parts: list[str] = []
        at = 0
        while match := self.heads.search(text, at):
            start, end = match.span()
            parts.append(text[at:start])
            piece = match.group()
            if piece not in self.user_defined:
                for end in range(min(start + self.longest, len(text)), start, -1):
                    if (piece := self.charsmap.get(text[start:end], "")) or text[start:end] in self.charsmap:
                        break
                else:
                    end, piece = start + 1, text[start]
            parts.append(piece)
            at = end
        return "".join(parts) + text[at:]


replacer = lru_cache(maxsize=4)(Replacer)  # source and target have the same map as a rule


class SentencePieceFormat(PieceFormat):
    """SentencePiece's text form: characters replaced by the map, spaces trimmed, `▁` for a space."""

    def __init__(
        self,
        charsmap: str,
        dummy_prefix: bool,
        remove_extra_spaces: bool,
        escape: bool,
        suffix: bool,
        user_defined: list[str],
    ) -> None:
        self._map = (charsmap, tuple(user_defined))
        self.dummy_prefix, self.suffix = dummy_prefix, suffix
        self.remove_extra_spaces, self.mark = remove_extra_spaces, "▁" if escape else " "

    @cached_property
    def replace(self) -> Replacer:
        return replacer(*self._map)

    def prepare(self, text: str) -> str:
        text = self.replace(text)
        if self.remove_extra_spaces:
            text = re.sub(" {2,}", " ", text.strip(" "))
        text = text.replace(" ", self.mark)
        if self.remove_extra_spaces:
            text = text.rstrip(self.mark)
        if not text or not self.dummy_prefix:
            return text
        return text + self.mark if self.suffix else self.mark + text

    def join(self, pieces: Sequence[str]) -> str:
        parts: list[str] = []
        raw = bytearray()
        for piece in [*pieces, ""]:
            if match := _BYTE_PIECE.fullmatch(piece):
                raw.append(int(match[1], 16))
                continue
            if raw:
                parts.append(raw.decode("utf-8", errors="replace"))
                raw.clear()
            parts.append(piece)
        text = "".join(parts).replace(self.mark, " ")
        if not self.dummy_prefix:
            return text
        if self.remove_extra_spaces:
            return text.strip(" ")
        return text.removesuffix(" ") if self.suffix else text.removeprefix(" ")

    def show(self, piece: str) -> str:
        return piece.strip(" ")

    def starts_word(self, piece: str, previous: str) -> bool:
        return previous.endswith(self.mark) if self.suffix else piece.startswith(self.mark)


class MarianFormat(SentencePieceFormat):
    """SentencePiece text after the code of a language, `>>fra<<`, where a text begins with one."""

    def __init__(self, codes: list[str], unknown: str, **options: Any) -> None:
        super().__init__(**options)
        self.codes, self.unknown = frozenset(codes), unknown

    def prepare(self, text: str) -> str:
        match = CODE.match(text)
        if match is None:
            return super().prepare(text)
        code = match.group()
        return (special_piece(code) if code in self.codes else self.unknown) + super().prepare(text[match.end() :])
