"""`regard classify`, `tag`, `answer` and `choose`: a line in, what a fine-tuned model says of it out, in order."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regard.api import load_as
from regard.cli.streams import bar, chunks, reading, separate, warn, writing
from regard.data.questions import parse_choice_line, parse_question_line
from regard.errors import RegardError
from regard.tasks.answer import Answer, SpanReader
from regard.tasks.choose import Chosen, OptionChooser
from regard.tasks.classify import TextClassifier
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
        for chunk in chunks(lines, lines.soon):
            for result in ask(chunk, done):
                done += 1
                line = json.dumps({"line": done, **result.json()}, ensure_ascii=False) if as_json else show(result)
                out.write(line + "\n")
            out.flush()
            tell(done, 0)


def _name(source: Path | None) -> str:
    return str(source or "standard input")


def classify(run: Path, source: Path | None, output: Path | None, device: str, as_json: bool) -> None:
    separate([output], [source])
    classifier = load_as(TextClassifier, run, device, "classify")

    def ask(lines: list[str], before: int) -> Sequence[Any]:
        texts: list[Any] = []
        for number, line in enumerate(lines, before + 1):
            sides = line.split("\t")
            if len(sides) > 2:
                raise RegardError(f"{_name(source)}, line {number}: {len(sides)} columns; write a text, or two")
            texts.append(tuple(sides) if len(sides) == 2 else line)
        return classifier.classify(texts, warn, before)

    _lines(source, output, "Classifying", ask, lambda result: result.label, as_json)


def tag(run: Path, source: Path | None, output: Path | None, device: str, as_json: bool) -> None:
    separate([output], [source])
    tagger = load_as(WordTagger, run, device, "tag")

    def ask(lines: list[str], before: int) -> Sequence[Any]:
        return tagger.tag(lines, lambda sentence: None if "no words" in sentence else warn(sentence), before)

    _lines(source, output, "Tagging", ask, lambda result: " ".join(result.tags), as_json)


def answer(run: Path, source: Path | None, output: Path | None, device: str, as_json: bool) -> None:
    separate([output], [source])
    reader = load_as(SpanReader, run, device, "answer")

    def ask(lines: list[str], before: int) -> Sequence[Answer]:
        asked = []
        for number, line in enumerate(lines, before + 1):
            asked.append(parse_question_line(line, f"{_name(source)}, line {number}") if line.strip() else ("", ""))
        return reader.answer(asked, warn, before)

    _lines(source, output, "Answering", ask, lambda found: " ".join(found.text.split()), as_json)


def choose(run: Path, source: Path | None, output: Path | None, device: str, as_json: bool) -> None:
    separate([output], [source])
    chooser = load_as(OptionChooser, run, device, "choose")
    earlier = 0

    def ask(lines: list[str], before: int) -> Sequence[Chosen]:
        nonlocal earlier
        asked = []
        for number, line in enumerate(lines, before + 1):
            if line.strip():
                asked.append(parse_choice_line(line, f"{_name(source)}, line {number}"))
        said = iter(chooser.choose(asked, warn, earlier))
        earlier += len(asked)  # empty lines are no questions
        return [next(said) if line.strip() else Chosen(-1, "", []) for line in lines]

    _lines(source, output, "Choosing", ask, lambda found: " ".join(found.text.split()), as_json)
