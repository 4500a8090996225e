"""`regard tokenise`: texts in; their pieces, ids and mask out, by the vocabulary of a trained model or a new one."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

from regard.cli.streams import batched_lines, input_lines, open_output, warn
from regard.config import choices, parse_config
from regard.data.readers import read_lines
from regard.errors import RegardError
from regard.reporting import Json
from regard.text import TextConfig, Tokenizer, train_tokenizer
from regard.text.piece_formats import ByteFormat

Training = tuple[Path | None, str | None, int | None]  # a text file, the kind of vocabulary, its size
_NO_OPTION = re.compile(r"text\.coverage=\S+ ")  # a recipe's way alone


@dataclass(frozen=True)
class _Section:
    text: TextConfig


def tokenise_texts(
    run: Path | None,
    texts: list[str] | None,
    source: Path | None,
    training: Training,
    side: str,
    length: int | None,
    as_json: bool,
) -> None:
    if texts and source:
        raise RegardError("--text and --input are both given; leave out one")
    tokenizer = _tokenizer(run, training, side)
    for note in tokenizer.notes():
        warn(note)
    lines = input_lines(source) if not texts else None
    batches: Iterator[list[str]] = batched_lines(lines, lines.ready) if lines else iter([texts or []])
    number = 0
    with open_output(None) as out:
        for batch in batches:
            for text, row in zip(batch, tokenizer.encode_batch(batch), strict=True):
                number += 1
                if length is not None and len(row) > length:
                    raise RegardError(
                        f"line {number}: {len(row)} tokens do not fit --length {length}; write {len(row)} or more"
                    )
                ids, mask = (rows[0].tolist() for rows in tokenizer.pad_batch([row], length))
                found = {"line": number, "text": text, "pieces": tokenizer.tokens(ids), "ids": ids}
                found["mask"] = [int(real) for real in mask]
                if not as_json and isinstance(tokenizer.piece_format, ByteFormat):  # else 我 would read æĪĳ
                    found["pieces"] = [piece.replace(" ", "") for piece in tokenizer.shown(ids)]
                out.write((json.dumps(found, ensure_ascii=False) if as_json else _columns(found, length)) + "\n")
            out.flush()


def _columns(found: Json, length: int | None) -> str:
    """Tabs between the columns, spaces between tokens; a mask says something only where there is padding."""
    names = ("pieces", "ids") if length is None else ("pieces", "ids", "mask")
    return "\t".join(" ".join(map(str, found[name])) for name in names)


def _tokenizer(run: Path | None, training: Training, side: str) -> Tokenizer:
    path, kind, size = training
    if (run is None) == (path is None):
        raise RegardError("give a trained model, or --train FILE to learn a vocabulary from")
    if run is not None:
        from regard.examples.vocabulary import load_side_tokenizer
        from regard.recipe import read_recipe

        if kind or size:
            raise RegardError("--kind and --size belong to --train; a trained model has its vocabulary")
        return load_side_tokenizer(run, getattr(read_recipe(run).task, "languages", ()), side)
    assert path is not None
    known = choices(TextConfig).get(kind or "bpe")
    if size and known and not any(field.name == "size" for field in fields(known)):
        raise RegardError(f"--kind {kind} has no size: it keeps every character; leave out --size")
    section = {"kind": kind or "bpe"} | ({"size": size} if size else {})
    config: TextConfig = parse_config(_Section, {"text": section}).text
    if config.files():
        raise RegardError(f"--kind {kind} reads files and learns nothing; use it in a recipe")
    try:
        return train_tokenizer(config, read_lines(path))
    except RegardError as error:  # it names the keys of a recipe
        raise RegardError(re.sub(r"text\.(kind|size)=", r"--\1 ", _NO_OPTION.sub("", str(error)))) from None
