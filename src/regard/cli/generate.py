"""`regard generate`: a language model goes on from a prompt, and shows what it writes as it writes it."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from regard.api import load_as
from regard.cli.streams import decode, warn, writing
from regard.decoding import Beam
from regard.predict.generation import Continuation, Piece, Writer
from regard.predict.options import chosen, either


def generate(
    run: Path,
    prompt: str | None,
    search: str | None,
    beam: int | None,
    drawn: dict[str, Any],
    samples: int,
    echo: bool,
    device: str,
    as_json: bool,
    **options: Any,
) -> None:
    writer = load_as(Writer, run, device, "generate")
    beam = either(search == "greedy", beam, "--")
    decoding = chosen(writer.recipe.decoding, beam, drawn, lambda key: f"--{key.replace('_', '-')}")
    given = "\n".join(decode(sys.stdin.buffer, "standard input")) if prompt is None else prompt
    shown = given if echo else ""
    with writing(None) as out:
        if as_json or isinstance(decoding, Beam):
            found = writer.generate(given, samples, decoding, warn=warn, **options)
            for n, whole in enumerate(found, 1):
                out.write(_line(n, whole) if as_json else f"{_mark(n, samples)}{shown}{whole.text}\n")
        else:
            show(writer.stream(given, samples, decoding, warn=warn, **options), samples, shown, out)


def show(pieces: Iterable[Piece], samples: int, shown: str, out: IO[str]) -> None:
    """One text after the other, the first as it is written; the others wait for their turn."""
    waiting: dict[int, list[str]] = {n: [] for n in range(samples)}
    done: set[int] = set()
    turn = 0
    out.write(_mark(1, samples) + shown)
    for piece in pieces:
        waiting[piece.sample].append(piece.text)
        if piece.whole is not None:
            done.add(piece.sample)
        while turn < samples:
            out.write("".join(waiting[turn]))
            waiting[turn] = []
            if turn not in done:
                break
            turn += 1
            out.write("\n" + (_mark(turn + 1, samples) + shown if turn < samples else ""))
        out.flush()


def _mark(number: int, samples: int) -> str:
    """What stands above each of several texts."""
    return f"--- {number}\n" if samples > 1 else ""


def _line(number: int, whole: Continuation) -> str:
    facts = {
        "sample": number,
        "text": whole.text,
        "tokens": len(whole.tokens),
        "log_probability": whole.log_probability,
        "ended": whole.ended,
    }
    return json.dumps(facts, ensure_ascii=False) + "\n"
