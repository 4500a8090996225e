"""OPUS-MT's vocabulary: a SentencePiece model for each side, and a table that numbers the pieces of both.

The pieces come from SentencePiece, the ids from the table; a piece that the table lacks is unknown. A source may begin
with the code of the language to translate into, `>>fra<<`, which is one piece.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Inner

from regard.errors import RegardError
from regard.io.files import read_json
from regard.text.piece_formats import special_piece
from regard.text.pretrained import from_sentencepiece
from regard.text.spm import CODE
from regard.text.tokenizer import IdTable, Tokenizer

SPM = {"source": "source.spm", "target": "target.spm"}


@dataclass(frozen=True)
class MarianSpecials:
    """The special token ids; the decoder of a Marian model begins with padding."""

    pad: int
    eos: int
    start: int
    unk: str = "<unk>"


def read_id_table(path: Path) -> dict[str, int]:
    """{piece: id}; the ids are 0, 1, 2 … without a gap."""
    table = read_json(path)
    if not all(type(i) is int for i in table.values()):
        raise RegardError(f"{path}: not a table of ids ({{piece: id}})")
    if sorted(table.values()) != list(range(len(table))):
        raise RegardError(f"{path}: its ids are not 0 to {len(table) - 1:,}, each once")
    return table


def from_marian(path: Path, table: dict[str, int], specials: MarianSpecials, language: str = "en") -> Tokenizer:
    """The tokenizer of one side: a `.spm` file and the table of ids."""
    if specials.unk not in table:
        raise RegardError(f"{path.parent}: the table of ids has no {specials.unk}, which unknown pieces become")
    if not all(0 <= i < len(table) for i in (specials.pad, specials.eos, specials.start)):
        raise RegardError(f"{path.parent}: the ids of padding, end and start lie outside the table of {len(table):,}")
    pieces = from_sentencepiece(path).in_language(language)
    if pieces.byte_ids:
        raise RegardError(f"{path}: it spells unknown characters as bytes, for which the table of ids has no place")
    codes = [piece for piece in table if CODE.fullmatch(piece)]
    inner = Inner.from_str(json.dumps(pieces.document))
    unknown = inner.id_to_token(pieces.unk)
    inner.add_tokens([AddedToken(text, normalized=False) for text in (unknown, *map(special_piece, codes))])
    unk = table[specials.unk]
    ids = [table.get(_name(inner.id_to_token(i)), unk) for i in range(inner.get_vocab_size())]
    ids[pieces.unk] = unk
    never = {specials.pad, specials.eos, specials.start, unk}
    names = [
        special_piece(piece) if i in never else piece for piece, i in sorted(table.items(), key=lambda item: item[1])
    ]
    special = {"pad": specials.pad, "unk": unk, "bos": specials.start, "eos": specials.eos}
    format_options = pieces.options | {"codes": codes, "unknown": unknown}
    document = json.loads(inner.to_str())
    return Tokenizer(
        document, "marian", pieces.normaliser, special, format_options, table=IdTable(names, ids, pieces.unk)
    )


def from_folder(folder: str | Path, side: str, language: str) -> Tokenizer:
    """The tokenizer of a side as OPUS-MT's own files describe it; the end is `</s>`, and `<pad>` begins."""
    folder = Path(folder)
    vocabulary = folder / "vocab.json"
    table = read_id_table(vocabulary)
    missing = [name for name in ("<pad>", "</s>") if name not in table]
    if missing:
        raise RegardError(f"{vocabulary}: it lacks {' and '.join(missing)}")
    specials = MarianSpecials(table["<pad>"], table["</s>"], table["<pad>"])
    return from_marian(folder / SPM[side], table, specials, language)


def _name(name: Any) -> str:
    """The name of a piece without the spaces that keep it from being found in text."""
    text = str(name)
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] == " " else text
