"""`regard classify`, `tag`, `answer` and `choose`: a line in, what a fine-tuned model says of it out, in order."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.folder import load_as
from regard.tasks.classify import TextClassifier
from regard.tasks.streams import bar, chunks, reading, warn, writing
from regard.tasks.tag import WordTagger


def _lines(
    source: Path | None,
    output: Path | None,
    what: str,
    ask: Callable[[list[str], int], Sequence[Any]],
    show: Callable[[Any], str],
    as_json: bool,
) -> None:
    """`ask` gives a result for each of some lines, of which the first has the number before it."""
    with reading(source) as lines, writing(output) as out, bar(what) as tell:
        done = 0
        for chunk in chunks(lines, interactive=source is None and sys.stdin.isatty()):
            for result in ask(chunk, done):
                done += 1
                line = json.dumps({"line": done, **result.json()}, ensure_ascii=False) if as_json else show(result)
                out.write(line + "\n")
            out.flush()
            tell(done, 0)


def _name(source: Path | None) -> str:
    return str(source or "standard input")


def classify(run: Path, source: Path | None, output: Path | None, device: str, as_json: bool) -> None:
    classifier = load_as(TextClassifier, run, device, "classify")

    def ask(lines: list[str], before: int) -> Sequence[Any]:
        texts: list[Any] = []
        for number, line in enumerate(lines, before + 1):
            sides = line.split("\t")
            if len(sides) > 2:
                raise RegardError(f"{_name(source)}, line {number}: {len(sides)} columns; write a text, or two")
            texts.append(tuple(sides) if len(sides) == 2 else line)
        return classifier.classify(texts, warn)

    _lines(source, output, "Classifying", ask, lambda result: result.label, as_json)


def tag(run: Path, source: Path | None, output: Path | None, device: str, as_json: bool) -> None:
    tagger = load_as(WordTagger, run, device, "tag")

    def ask(lines: list[str], before: int) -> Sequence[Any]:
        return tagger.tag(lines, lambda sentence: None if "no words" in sentence else warn(sentence))

    _lines(source, output, "Tagging", ask, lambda result: " ".join(result.tags), as_json)
