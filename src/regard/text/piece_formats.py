"""Piece formats: how the pieces of each kind of vocabulary spell text, and how pieces become text again.

A literal space never reaches a model as part of a word, so a space inside a piece is an unmistakable mark:
`low ` is the end of a word in BPE, ` low` the beginning of one in Unigram, and the special tokens are named
` <pad> `, with one at both ends. No text that a user writes can spell them. A format knows no ids.
"""

from collections.abc import Callable, Sequence
from functools import cache

from regard.text.normaliser import join_words, segment_chinese, space_cjk

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")  # ids 0, 1, 2, 3


def special_piece(name: str) -> str:
    """The name of a special token inside a vocabulary."""
    return f" {name} "


class PieceFormat:
    """The characters themselves (kind `char`); the base class of the others."""

    inner_piece = "x"  # a piece inside a word

    def prepare(self, text: str) -> str:
        return text

    def join(self, pieces: Sequence[str]) -> str:
        return "".join(pieces)

    def show(self, piece: str) -> str:
        return piece.replace(" ", "▁")

    def readable(self, piece: str) -> str:
        """The same for a reader who knows nothing of how pieces are marked."""
        return self.show(piece)

    def starts_word(self, piece: str, previous: str) -> bool:
        """Does a new word begin with this piece? `previous` is the piece before it."""
        return previous.endswith(" ") and piece != " "


class WordFormat(PieceFormat):
    """Whole words with spaces between them."""

    def __init__(self, jieba: bool = False, spaces: bool = False) -> None:
        self._cut: Callable[[str], str] = segment_chinese if jieba else str if spaces else space_cjk
        self._join: Callable[[Sequence[str]], str] = " ".join if spaces else join_words

    def prepare(self, text: str) -> str:
        return self._cut(text)

    def join(self, pieces: Sequence[str]) -> str:
        return self._join(pieces)

    def starts_word(self, piece: str, previous: str) -> bool:
        return True


class EndOfWordFormat(PieceFormat):
    """BPE: every word ends with a space, shown as `</w>`."""

    def prepare(self, text: str) -> str:
        return text + " " if text else ""

    def join(self, pieces: Sequence[str]) -> str:
        return "".join(pieces).rstrip(" ")

    def show(self, piece: str) -> str:
        return piece.replace(" ", "</w>")

    def readable(self, piece: str) -> str:
        return (piece[:-1] or "▁") if piece.endswith(" ") else f"{piece}@@"

    def starts_word(self, piece: str, previous: str) -> bool:
        return previous.endswith(" ")


class StartOfWordFormat(PieceFormat):
    """Unigram: every word begins with a space, shown as `▁`."""

    def prepare(self, text: str) -> str:
        return " " + text if text else ""

    def join(self, pieces: Sequence[str]) -> str:
        return "".join(pieces).strip(" ")

    def starts_word(self, piece: str, previous: str) -> bool:
        return piece.startswith(" ")


class ContinuationFormat(PieceFormat):
    """WordPiece: `##` joins a piece to the one before it."""

    inner_piece = "##x"

    def prepare(self, text: str) -> str:
        return space_cjk(text)

    def join(self, pieces: Sequence[str]) -> str:
        words: list[str] = []
        for piece in pieces:
            if words and len(piece) > 2 and piece.startswith("##"):
                words[-1] += piece[2:]
            else:
                words.append(piece)
        return join_words(words)

    def show(self, piece: str) -> str:
        return piece

    def starts_word(self, piece: str, previous: str) -> bool:
        return not (len(piece) > 2 and piece.startswith("##"))


class BertFormat(ContinuationFormat):
    """WordPiece that cleans and cuts text by BERT's own rules, inside `tokenizers`."""

    def prepare(self, text: str) -> str:
        return text


@cache
def byte_of_symbol() -> dict[str, int]:
    """GPT-2's symbols for the 256 bytes: printable Latin-1 is itself, the rest follow from U+0100."""
    printable = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


class ByteFormat(PieceFormat):
    """UTF-8 bytes as printable symbols (byte-level BPE)."""

    def join(self, pieces: Sequence[str]) -> str:
        table = byte_of_symbol()
        raw = bytes(table[c] for piece in pieces for c in piece)  # "<unk>" and the like are ASCII, which is itself
        return raw.decode("utf-8", errors="replace")

    def show(self, piece: str) -> str:
        return piece

    def readable(self, piece: str) -> str:
        text = self.join([piece])
        if "\ufffd" in text:  # a part of a character
            return " ".join(f"{byte_of_symbol()[symbol]:02x}" for symbol in piece)
        return text.replace(" ", "▁").replace("\n", "↵")

    def starts_word(self, piece: str, previous: str) -> bool:
        return piece[:1] in ("Ġ", "Ċ", "ĉ", "č")  # space, newline, tab, carriage return
