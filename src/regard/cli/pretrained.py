"""`regard fill` and `regard embed`: words for each [MASK]; a vector for each line, or all as one .npy file."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from regard.cli.commands.options import EmbedOptions, FillOptions, long_config
from regard.cli.streams import batched_lines, input_lines, offset_progress, open_output, progress_bar, warn
from regard.errors import RegardError
from regard.examples.long_text import Shortened, long_json
from regard.io.atomic import atomic_write
from regard.predict.embedding import TextEmbedder
from regard.predict.filling import MASK, MaskFiller, MaskPrediction

NAMED = 5  # lines without predictions that are reported one by one

Shortenings = dict[int, Shortened]  # what was done with long texts, by their index
Embeddings = Iterator[tuple[list[str], np.ndarray, Shortenings]]  # texts and their vectors, some at a time


def fill(options: FillOptions) -> None:
    long, filler = long_config(options.long), options.load(MaskFiller, "fill")
    done, without, apart = 0, 0, 0

    def warn_apart(sentence: str) -> None:
        nonlocal apart
        apart += "apart;" in sentence
        if apart <= NAMED or "apart;" not in sentence:
            warn(sentence)

    lines = input_lines(options.input)
    with open_output(options.output) as out:
        for batch in batched_lines(lines, lines.ready):
            shortened: Shortenings = {}
            predictions = filler.fill(batch, options.top, options.batch_tokens, done, warn_apart, long, shortened)
            for number, (line, masks) in enumerate(zip(batch, predictions, strict=True), done + 1):
                how = shortened.get(number - done - 1)
                out.write(_json_line(number, line, masks, how) if options.as_json else f"{_text_line(masks)}\n")
                if MASK not in line and line.strip():
                    without += 1
                    if without <= NAMED:
                        warn(f"line {number} has no {MASK}: there is nothing to fill")
            out.flush()
            done += len(batch)
    if without > NAMED:
        warn(f"{without:,} lines had no {MASK}")
    if apart > NAMED:
        warn(f"{apart:,} lines had gaps too far apart")


def _text_line(masks: list[list[MaskPrediction]]) -> str:
    """Words and probabilities in turn; a tab between masks."""
    return "\t".join(" ".join(f"{best.word} {best.probability:.4f}" for best in mask) for mask in masks)


def _json_line(number: int, line: str, masks: list[list[MaskPrediction]], long: Shortened | None) -> str:
    gaps = [[best._asdict() for best in mask] for mask in masks]
    return json.dumps({"line": number, "text": line, "gaps": gaps} | long_json(long), ensure_ascii=False) + "\n"


def embed(options: EmbedOptions) -> None:
    names = ("pooling", "layer", "layers", "join", "normalise", "batch_tokens")  # of `TextEmbedder.embed`
    own = {name: vars(options)[name] for name in names} | {"long": long_config(options.long)}
    output, embedder = options.output, options.load(TextEmbedder, "embed")
    binary = output is not None and output.suffix == ".npy"
    if binary and options.as_json:
        raise RegardError(f"--json writes lines, and {output} would hold an array; leave out one of the two")
    with progress_bar("Embedding") as report:
        embeddings = _embeddings(embedder, options.input, own, report)
        if output is not None and binary:
            save_array(output, embeddings, embedder.width(**own))
        else:
            _write_lines(output, embeddings, options.as_json)


def _embeddings(
    embedder: TextEmbedder, source: Path | None, options: dict[str, Any], report: Callable[[int, int], None]
) -> Embeddings:
    lines, done = input_lines(source), 0
    for batch in batched_lines(lines, lines.ready):
        long: Shortenings = {}
        made = embedder.embed(batch, progress=offset_progress(done, report), warn=warn, shortened=long, **options)
        yield batch, made, long
        done += len(batch)


def _write_lines(output: Path | None, embeddings: Embeddings, as_json: bool) -> None:
    """Numbers with tabs between them, or JSON; a line without words gives an empty line, or an empty list."""
    number = 0
    with open_output(output) as out:
        for texts, vectors, long in embeddings:
            for n, (text, vector) in enumerate(zip(texts, vectors, strict=True)):
                number += 1
                values = [f"{value:.9g}" for value in vector] if text.strip() else []
                numbers = [float(value) for value in values]
                row = {"line": number, "vector": numbers} | long_json(long.get(n))
                out.write((json.dumps(row) if as_json else "\t".join(values)) + "\n")
            out.flush()


def save_array(path: Path, embeddings: Embeddings, size: int) -> None:
    parts = [batch[1] for batch in embeddings]
    with atomic_write(path, "wb") as file:
        array = np.concatenate(parts) if parts else np.zeros((0, size), dtype=np.float32)
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)  # np.save would ask a pipe for its position
