"""`regard fill`: a line with [MASK] in, the likeliest words for each mask out."""

import json
from pathlib import Path

from regard.api import load_as
from regard.cli.streams import batched_lines, check_distinct_files, input_lines, open_output, warn
from regard.predict.filling import MASK, MaskFiller, MaskPrediction

NAMED = 5  # lines without predictions that are reported one by one


def fill(
    run: Path, source: Path | None, output: Path | None, top: int, batch_tokens: int, device: str, as_json: bool
) -> None:
    check_distinct_files([output], [source])
    filler = load_as(MaskFiller, run, device, "fill")
    done, without, apart = 0, 0, 0

    def warn_apart(sentence: str) -> None:
        nonlocal apart
        apart += 1
        if apart <= NAMED:
            warn(sentence)

    lines = input_lines(source)
    with open_output(output) as out:
        for batch in batched_lines(lines, lines.ready):
            predictions = filler.fill(batch, top, batch_tokens, done, warn_apart)
            for number, (line, masks) in enumerate(zip(batch, predictions, strict=True), done + 1):
                out.write(_json_line(number, line, masks) if as_json else f"{_text_line(masks)}\n")
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


def _json_line(number: int, line: str, masks: list[list[MaskPrediction]]) -> str:
    gaps = [[best._asdict() for best in mask] for mask in masks]
    return json.dumps({"line": number, "text": line, "gaps": gaps}, ensure_ascii=False) + "\n"
