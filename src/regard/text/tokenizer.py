"""One class for every kind of vocabulary: text to ids and back, padding, and one JSON file on disk.

Pieces are looked up by `tokenizers`; what comes before (normaliser) and after (piece formats) is Python. A Tokenizer
knows no corpus, no model and no task, and adds no special tokens by default.
"""

import copy
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tokenizers import Encoding
from tokenizers import Tokenizer as Inner

from regard.errors import RegardError, utf8_errors
from regard.io.atomic import atomic_write
from regard.io.files import DamagedFile, os_errors_for, read_json
from regard.reporting import Json
from regard.text import moses, piece_formats, spm
from regard.text.normaliser import TextNormaliser, join_words

if TYPE_CHECKING:
    from regard.text.sampling import Sampler

VERSION = 1
PIECE_FORMATS: dict[str, Callable[..., piece_formats.PieceFormat]] = {
    "word": piece_formats.WordFormat,
    "char": piece_formats.PieceFormat,
    "bpe": piece_formats.EndOfWordFormat,
    "byte_bpe": piece_formats.ByteFormat,
    "wordpiece": piece_formats.ContinuationFormat,
    "unigram": piece_formats.StartOfWordFormat,
    "sentencepiece": spm.SentencePieceFormat,
    "marian": spm.MarianFormat,
    "gpt2": piece_formats.ByteFormat,
    "bert": piece_formats.BertFormat,
}


@dataclass(frozen=True)
class IdTable:
    """Ids that are not the inner tokenizer's own: a table numbers the pieces, those of other tokenizers among them."""

    pieces: list[str]  # of every id of the table
    ids: list[int]  # the id in the table of every inner id
    unk: int  # the inner id of what the tokenizer does not know; the table may know it

    @cached_property
    def _known(self) -> dict[str, int]:
        return {piece: i for i, piece in enumerate(self.pieces)}

    def renumber(self, inner: Inner, rows: Sequence[Sequence[int]], texts: Sequence[str]) -> list[list[int]]:
        """Rows of inner ids, which are those of the texts, as ids of the table."""
        return [
            self._look_up(inner, text) if self.unk in row else [self.ids[i] for i in row]
            for row, text in zip(rows, texts, strict=True)
        ]

    def _look_up(self, inner: Inner, text: str) -> list[int]:
        """What is unknown may be a piece of the other language, which is found by its text."""
        encoding = inner.encode(text, add_special_tokens=False)
        return [
            self._known.get(text[start:end], self.ids[i]) if i == self.unk else self.ids[i]
            for i, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)
        ]


class Tokenizer:
    """A trained or loaded vocabulary. Make one with `regard.text.train_tokenizer` or `Tokenizer.load`."""

    def __init__(
        self,
        document: Json,
        kind: str,
        normaliser: TextNormaliser,
        special: dict[str, int],
        format_options: Json | None = None,
        sampling: dict[str, float] | None = None,
        sample: dict[str, int] | None = None,
        byte_ids: list[int] | None = None,
        table: IdTable | None = None,
    ) -> None:
        # `document` is the JSON of `tokenizers`, whose parser does not read back every float that it writes.
        # Both a trained and a loaded tokenizer are built from the document, so they agree to the last bit.
        self.document, self.inner = document, Inner.from_str(json.dumps(document))
        self.kind, self.normaliser, self.special = kind, normaliser, special
        self.sampling, self.sample = sampling or {}, sample or {}
        self.pad, self.unk, self.bos, self.eos = (special[name] for name in ("pad", "unk", "bos", "eos"))
        self.piece_format: piece_formats.PieceFormat = PIECE_FORMATS[kind](**(format_options or {}))
        self.options = format_options or {}
        self.byte_ids = byte_ids or []  # where each byte of an unknown character goes, if anywhere
        self.table = table
        own = [self.inner.id_to_token(i) or "" for i in range(self.inner.get_vocab_size())]
        self.pieces = table.pieces if table else own  # of every id; special tokens have a space at both ends
        self._visible = ["<unk>" if i == self.unk else piece for i, piece in enumerate(self.pieces)]
        self._silent = frozenset(special.values()) - ({self.unk} if self.unk != self.eos else set())

    @property
    def size(self) -> int:
        return len(self.pieces)

    def notes(self) -> list[str]:
        """What the user should know of how it was trained, in sentences."""
        if "size_requested" not in self.sample:
            return []
        requested = self.sample["size_requested"]
        return [f"a vocabulary of {self.size:,} pieces, not {requested:,}: no other pair is frequent enough to merge"]

    @property
    def model(self) -> Json:
        """The pieces with their merges or scores, as `tokenizers` writes them."""
        return self.document["model"]

    @property
    def mask(self) -> int | None:
        return self.special.get("mask")

    @property
    def language(self) -> str:
        return self.normaliser.language

    def in_language(self, language: str) -> "Tokenizer":
        """The same vocabulary with another language's Moses rules: when shared, each side has its view."""
        other = copy.copy(self)
        other.normaliser = replace(self.normaliser, language=language)
        return other

    # --- text and ids

    def normalise(self, text: str) -> str:
        """The text form the vocabulary works on; what `decode` gives back."""
        return self.normaliser.apply(text)

    def prepare(self, text: str) -> str:
        """The input of the inner tokenizer for a text."""
        return self.piece_format.prepare(self.normaliser.apply(text))

    def encode(self, text: str) -> list[int]:
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        with utf8_errors(texts):
            return self._encode_batch([self.prepare(text) for text in texts])

    def _encode_batch(self, prepared: list[str]) -> list[list[int]]:
        if not self.byte_ids:
            rows = [e.ids for e in self.inner.encode_batch_fast(prepared, add_special_tokens=False)]
            return rows if self.table is None else self.table.renumber(self.inner, rows, prepared)
        encodings = self.inner.encode_batch(prepared, add_special_tokens=False)
        return [self._unknown_to_bytes(e, text) for e, text in zip(encodings, prepared, strict=True)]

    def _unknown_to_bytes(self, encoding: Encoding, text: str) -> list[int]:
        ids: list[int] = []
        for piece, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            if piece == self.unk:
                ids.extend(self.byte_ids[byte] for byte in text[start:end].encode())
            else:
                ids.append(piece)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the pieces. Special tokens are left out, but an unknown piece is seen as `<unk>`."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, rows: Sequence[Sequence[int]]) -> list[str]:
        join, visible, silent = self.piece_format.join, self._visible, self._silent
        return [join([visible[i] for i in row if i not in silent]) for row in rows]

    def detokenise(self, text: str, language: str | None = None) -> str:
        """Decoded text as people write it: undoes the Moses form, if that is the form."""
        if not self.normaliser.moses:
            return text
        return join_words(moses.detokenise(text, language or self.language).split(" "))

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """The pieces as people like to see them."""
        special = set(self.special.values())
        return [self.pieces[i].strip(" ") if i in special else self.piece_format.show(self.pieces[i]) for i in ids]

    def shown(self, ids: Sequence[int]) -> list[str]:
        """The pieces as people read them: bytes as the text they are, a piece that a word goes on after as `pie@@`."""
        special = set(self.special.values())
        return [self.pieces[i].strip(" ") if i in special else self.piece_format.readable(self.pieces[i]) for i in ids]

    def words(self, ids: Sequence[int]) -> list[int]:
        """For every piece the number of its word, from 0; -1 for special tokens."""
        numbers: list[int] = []
        word, previous = -1, ""
        for i in ids:
            if i in self._silent:
                numbers.append(-1)
                continue
            piece = self._visible[i]
            word += word < 0 or self.piece_format.starts_word(piece, previous)
            numbers.append(word)
            previous = piece
        return numbers

    def edges(self) -> list[tuple[str, str]]:
        """For every piece the characters that stand beside others of a text, before and after it; "" where none does.

        That is a space where a word begins or ends with the piece. Of an unknown piece nothing is known but a letter.
        """
        join, inner_piece = self.piece_format.join, self.piece_format.inner_piece
        alone = len(join([inner_piece]))
        pieces = ["x" if i == self.unk else piece for i, piece in enumerate(self.pieces)]
        return [
            ("", "")
            if i in self._silent
            else (join([inner_piece, piece])[alone:][:1], join([piece, inner_piece])[:-1][-1:])
            for i, piece in enumerate(pieces)
        ]

    def pad_batch(
        self, rows: Sequence[Sequence[int]], length: int | None = None, bos: bool = False, eos: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ids [B, T] and mask [B, T] (True where real), T being `length` or that of the longest row."""
        before, after = [self.bos] * bos, [self.eos] * eos
        full = [[*before, *row, *after] for row in rows]
        longest = max(map(len, full), default=0)
        if length is not None and longest > length:
            raise RegardError(
                f"a row of {longest} tokens does not fit a length of {length}; cut it or raise the length"
            )
        ids = np.full((len(full), longest if length is None else length), self.pad, dtype=np.int64)  # [B, T]
        for i, row in enumerate(full):
            ids[i, : len(row)] = row
        lengths = np.array([len(row) for row in full], dtype=np.int64)
        mask = np.arange(ids.shape[1]) < lengths[:, None]  # [B, T]
        return ids, mask

    def sampler(self) -> "Sampler":
        """Segmentations drawn at random, by the `dropout` or `alpha` the vocabulary was trained with."""
        from regard.text.sampling import Sampler

        return Sampler(self, self.sampling.get("dropout", 0.0), self.sampling.get("alpha", 0.0))

    # --- one JSON file

    def dumps(self) -> str:
        header = {
            "version": VERSION,
            "kind": self.kind,
            "stages": asdict(self.normaliser),
            "special": self.special,
            "form": self.options,
            "sampling": self.sampling,
            "sample": self.sample,
            "byte_ids": self.byte_ids,
            "sum": _sum(self.document),
        }
        if self.table is not None:
            header["table"] = asdict(self.table)
        return json.dumps({"regard": header, "tokenizer": self.document}, ensure_ascii=False)

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.dumps().encode()).hexdigest()[:16]

    def save(self, path: str | Path) -> None:
        with os_errors_for(path, "written"):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(Path(path)) as file:
            file.write(self.dumps())

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        return cls.from_document(read_json(path), str(path))

    @classmethod
    def from_document(cls, document: Json, name: str) -> "Tokenizer":
        """The tokenizer in a parsed file; `name` is for messages."""
        header = document.get("regard") if isinstance(document, dict) else None
        if not isinstance(header, dict) or "version" not in header:
            raise RegardError(f"{name}: not a tokenizer that regard wrote (it has no `regard` part)")
        if header["version"] != VERSION:
            raise RegardError(f"{name}: not of format {VERSION}, which this regard reads; update regard")
        try:
            if header["sum"] != _sum(document["tokenizer"]):
                raise ValueError("the vocabulary does not match its checksum")
            _check_header(header)
            check_parts(document["tokenizer"])
            tokenizer = cls(
                document["tokenizer"],
                header["kind"],
                TextNormaliser(**header["stages"]),
                header["special"],
                header["form"],
                header["sampling"],
                header["sample"],
                header["byte_ids"],
                IdTable(**header["table"]) if "table" in header else None,
            )
            ids = (*tokenizer.special.values(), *tokenizer.byte_ids)
            if not all(type(i) is int and 0 <= i < tokenizer.size for i in ids):
                raise ValueError("a special token lies outside the vocabulary")
        except Exception as error:  # `tokenizers` raises plain Exception
            reason = str(error) if type(error) is ValueError else type(error).__name__  # not what is in the file
            raise DamagedFile(f"{name}: damaged: not a tokenizer that can be used ({reason[:80]})") from None
        return tokenizer


def _check_header(header: Json) -> None:
    """Raises ValueError for what fails only where it is used: numbers that are none, text that is not UTF-8."""
    json.dumps(header, ensure_ascii=False).encode()
    for name in ("sampling", "sample"):
        if not isinstance(header[name], dict) or any(type(n) not in (int, float) for n in header[name].values()):
            raise ValueError(f"its {name} is not made of numbers")


# What regard's own vocabularies are made of. Others could repeat text without end, or match it for hours.
SPLITTERS: dict[str | None, set[str]] = {
    None: set(),
    "WhitespaceSplit": set(),
    "BertPreTokenizer": set(),
    "Split": {"pattern", "behavior", "invert"},
    "ByteLevel": {"add_prefix_space", "trim_offsets", "use_regex"},
}
LONGEST_PIECE = 4096  # characters
LONGEST_WORD = 100  # characters that WordPiece looks at; the time grows with their cube
NESTED = 100  # pieces of Unigram that begin with each other, all of which are tried at each place of a text
ADDED = 100_000  # characters of all added tokens, of which a matcher is built


def check_parts(document: Json) -> None:
    """Raises ValueError for what no vocabulary of ours has."""
    splitter, normaliser = document.get("pre_tokenizer") or {}, document.get("normalizer") or {}
    if normaliser.get("type") not in (None, "BertNormalizer") or splitter.get("type") not in SPLITTERS:
        raise ValueError("it has a normalizer or pre_tokenizer that is not read")
    if set(splitter) - {"type"} - SPLITTERS[splitter.get("type")] or splitter.get("pattern") not in (
        None,
        {"String": " "},
    ):
        raise ValueError("it has a pre_tokenizer that is not read")
    if any(document.get(part) for part in ("post_processor", "decoder", "truncation", "padding")):
        raise ValueError("it has a post_processor, a decoder, truncation or padding, which are not read")
    vocabulary = document["model"]["vocab"]
    pieces = vocabulary if isinstance(vocabulary, dict) else (piece for piece, _ in vocabulary)
    if any(len(piece) > LONGEST_PIECE for piece in pieces):
        raise ValueError(f"a piece has more than {LONGEST_PIECE:,} characters")
    if document["model"].get("max_input_chars_per_word", 0) > LONGEST_WORD:
        raise ValueError(f"its words have more than {LONGEST_WORD} characters")
    if isinstance(vocabulary, list) and _nested([piece for piece, _ in vocabulary]) > NESTED:
        raise ValueError(f"more than {NESTED} pieces begin with each other")
    if sum(len(token["content"]) for token in document["added_tokens"]) > ADDED:
        raise ValueError(f"its added tokens have more than {ADDED:,} characters")


def _nested(pieces: list[str]) -> int:
    """How many pieces, at most, begin with each other."""
    most, chain = 0, list[str]()
    for piece in sorted(pieces):
        while chain and not piece.startswith(chain[-1]):
            chain.pop()
        chain.append(piece)
        most = max(most, len(chain))
    return most


def _sum(document: object) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
