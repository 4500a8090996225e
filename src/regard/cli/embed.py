"""`regard embed`: a text a line in, a vector a line out, or all of them as one .npy file."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np

from regard.api import load_as
from regard.cli.streams import Lines, after, bar, chunks, reading, separate, warn, writing
from regard.errors import RegardError
from regard.io.atomic import atomic_write
from regard.predict.embedding import Embedder, Pooling

Made = Iterator[tuple[list[str], np.ndarray]]  # texts and their vectors, some at a time


def embed(
    run: Path,
    source: Path | None,
    output: Path | None,
    pooling: str | None,
    layer: int | None,
    normalise: bool | None,
    batch_tokens: int,
    device: str,
    as_json: bool,
) -> None:
    separate([output], [source])
    embedder = load_as(Embedder, run, device, "embed")
    binary = output is not None and output.suffix == ".npy"
    if binary and as_json:
        raise RegardError(f"--json writes lines, and {output} would hold an array; leave out one of the two")
    options: dict[str, Any] = {"pooling": cast(Pooling | None, pooling), "layer": layer, "normalise": normalise}
    with reading(source) as lines, bar("Embedding") as tell:
        made = _made(embedder, lines, options | {"batch_tokens": batch_tokens, "warn": warn}, tell)
        if binary:
            _save(cast(Path, output), made, embedder.body.config.size)
        else:
            _write(output, made, as_json)


def _made(embedder: Embedder, lines: Lines, options: dict[str, Any], tell: Any) -> Made:
    start = 0
    for chunk in chunks(lines, lines.soon):
        yield chunk, embedder.embed(chunk, progress=after(start, tell), **options)
        start += len(chunk)


def _write(output: Path | None, made: Made, as_json: bool) -> None:
    """Numbers with tabs between them, or JSON; a line without words gives an empty line, or an empty list."""
    number = 0
    with writing(output) as out:
        for texts, vectors in made:
            for text, vector in zip(texts, vectors, strict=True):
                number += 1
                values = [f"{value:.9g}" for value in vector] if text.strip() else []
                listed = [float(value) for value in values]
                out.write((json.dumps({"line": number, "vector": listed}) if as_json else "\t".join(values)) + "\n")
            out.flush()


def _save(path: Path, made: Made, size: int) -> None:
    parts = [vectors for _, vectors in made]
    with atomic_write(path, "wb") as file:
        array = np.concatenate(parts) if parts else np.zeros((0, size), dtype=np.float32)
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)  # np.save would ask a pipe for its position
