"""A document as a stream of lines, none longer than a window: memory is bounded by it, not by the file."""

import re
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

from regard.errors import RegardError

WINDOW = 1 << 14  # bytes that are held of one line
_SENTENCE_END = re.compile(rb"[.!?][\"')\]]*[ \t]|\xe3\x80\x82|\xef\xbc[\x81\x9f]")

Repair = Callable[[bytes, int], bytes]  # of a line that is not UTF-8, by its number


class Piece(NamedTuple):
    """A line, or a part of one that is longer than the window."""

    number: int  # of the line, from 1
    text: str
    end: str  # \n, \r\n, or nothing: the line goes on, or the file ends
    begins: bool = True  # whether the line begins here


def read_pieces(file: IO[bytes], name: str, repair: Repair | None = None) -> Iterator[Piece]:
    carry, number, begins = b"", 1, True
    while raw := carry + file.readline(WINDOW):
        carry = b""
        if not raw.endswith(b"\n") and len(raw) >= WINDOW:
            at = _cut(raw)
            raw, carry = raw[:at], raw[at:]
        try:
            line = (repair(raw, number) if repair else raw).decode("utf-8")
        except UnicodeDecodeError as error:
            raise RegardError(
                f"{name}, line {number}: not valid UTF-8 (byte 0x{raw[error.start]:02x}); convert the file, or give "
                "--errors replace"
            ) from None
        text = line.removesuffix("\n").removesuffix("\r") if line.endswith("\n") else line
        yield Piece(number, text, line[len(text) :], begins)
        begins = line.endswith("\n")
        number += begins


def _cut(raw: bytes) -> int:
    """Where a line that is too long is cut: at the last end of a sentence, else at a space, else between characters."""
    ends = [match.end() for match in _SENTENCE_END.finditer(raw)]
    if ends:
        return ends[-1]
    if space := max(raw.rfind(b" "), raw.rfind(b"\t")) + 1:
        return space
    at = len(raw) - 1
    while at > len(raw) - 4 and raw[at] & 0xC0 == 0x80:
        at -= 1
    return at
