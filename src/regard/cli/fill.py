"""`regard fill`: a line with gaps in, the likeliest words for each gap out."""

import json
from pathlib import Path

from regard.api import load_as
from regard.cli.streams import chunks, reading, separate, warn, writing
from regard.predict.filling import MASK, Filler, Guess

NAMED = 5  # lines that are left empty and told of one by one


def fill(
    run: Path, source: Path | None, output: Path | None, top: int, batch_tokens: int, device: str, as_json: bool
) -> None:
    separate([output], [source])
    filler = load_as(Filler, run, device, "fill")
    start, without, apart = 0, 0, 0

    def tell(sentence: str) -> None:
        nonlocal apart
        apart += 1
        if apart <= NAMED:
            warn(sentence)

    with reading(source) as lines, writing(output) as out:
        for chunk in chunks(lines, lines.soon):
            for number, (line, gaps) in enumerate(
                zip(chunk, filler.fill(chunk, top, batch_tokens, start, tell), strict=True), start + 1
            ):
                out.write(_json(number, line, gaps) if as_json else f"{_line(gaps)}\n")
                if MASK not in line and line.strip():
                    without += 1
                    if without <= NAMED:
                        warn(f"line {number} has no {MASK}: there is nothing to fill")
            out.flush()
            start += len(chunk)
    if without > NAMED:
        warn(f"{without:,} lines had no {MASK}")
    if apart > NAMED:
        warn(f"{apart:,} lines had gaps too far apart")


def _line(gaps: list[list[Guess]]) -> str:
    """Words and probabilities in turn; a tab between gaps."""
    return "\t".join(" ".join(f"{guess.word} {guess.probability:.4f}" for guess in gap) for gap in gaps)


def _json(number: int, line: str, gaps: list[list[Guess]]) -> str:
    found = [[guess._asdict() for guess in gap] for gap in gaps]
    return json.dumps({"line": number, "text": line, "gaps": found}, ensure_ascii=False) + "\n"
