"""Lines that a vocabulary mostly does not know, such as those in another script. Knows no model."""

from collections.abc import Sequence
from functools import lru_cache

from regard.text.piece_formats import ByteFormat, byte_of_symbol
from regard.text.tokenizer import Tokenizer

FEW = 0.15  # a share of unknown pieces below which a line is not looked at more closely
WORDS = ("word", "wordpiece", "bert")  # vocabularies in which a whole word is known or not


def unknown_lines(lines: Sequence[str], rows: Sequence[Sequence[int]], tokenizer: Tokenizer) -> list[int]:
    """The indices of lines of whose characters more than half are in no piece that the vocabulary knows.

    Of words as wholes, more than half must be unknown too: one long word is not enough.
    """
    indices, unknown = [], unknown_ids(tokenizer)
    few = 0.5 if tokenizer.kind in WORDS else FEW
    for n, row in enumerate(rows):
        if unknown.isdisjoint(row):
            continue
        known = [i for i in row if i not in unknown]
        if len(known) < (1 - few) * len(row):
            covered = len(tokenizer.decode(known).replace(" ", ""))
            if 2 * covered < len(lines[n]) - lines[n].count(" "):
                indices.append(n)
    return indices


@lru_cache(maxsize=8)
def unknown_ids(tokenizer: Tokenizer) -> frozenset[int]:
    """The ids of text that has no pieces of its own: <unk>, and bytes of characters beyond ASCII, one by one.

    A vocabulary of nothing but bytes knows every character as well as any other.
    """
    unknown = set(tokenizer.byte_ids)
    if tokenizer.unk != tokenizer.eos:  # GPT-2 has one mark for all
        unknown.add(tokenizer.unk)
    if isinstance(tokenizer.piece_format, ByteFormat):
        special, table = set(tokenizer.special.values()), byte_of_symbol()
        pieces = {i: piece for i, piece in enumerate(tokenizer.pieces) if i not in special}
        if any(len(piece) > 1 for piece in pieces.values()):
            unknown |= {i for i, piece in pieces.items() if len(piece) == 1 and table.get(piece, 0) >= 0x80}
    return frozenset(unknown)


def unknown_lines_warning(numbers: Sequence[int]) -> str:
    """A sentence about such lines, by their numbers."""
    return (
        f"{len(numbers)} line(s) are mostly unknown to the model's vocabulary, first line {numbers[0]}; "
        "is it the right model? Their translations mean little"
    )
