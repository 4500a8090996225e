"""`regard classify`, `tag`, `answer` and `choose`: a line in, the prediction of a fine-tuned model out, in order."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from regard.api import ModelLoader, load_as
from regard.cli.streams import batched_lines, check_distinct_files, input_lines, open_output, progress_bar, warn
from regard.data.questions import parse_choice_line, parse_question_line
from regard.errors import RegardError
from regard.examples.long_text import LongConfig
from regard.predict.answering import Answer, QuestionAnswerer
from regard.predict.choosing import ChosenOption, OptionChooser
from regard.predict.classification import Label, Number, TextClassifier
from regard.predict.tagging import WordTagger


class Prediction(Protocol):
    def json(self) -> dict[str, object]: ...


P = TypeVar("P", bound=Prediction)


def _predict_lines(
    source: Path | None,
    output: Path | None,
    what: str,
    predict: Callable[[list[str], int], Sequence[P]],
    to_text: Callable[[P], str],
    as_json: bool,
) -> None:
    """`predict` gives a prediction for each of some lines, of which the first has the number before it."""
    lines = input_lines(source)
    with open_output(output) as out, progress_bar(what) as report:
        done = 0
        for batch in batched_lines(lines, lines.ready):
            for prediction in predict(batch, done):
                done += 1
                row = {"line": done, **prediction.json()}
                out.write((json.dumps(row, ensure_ascii=False) if as_json else to_text(prediction)) + "\n")
            out.flush()
            report(done, 0)


def _where(source: Path | None, number: int) -> str:
    return f"{source or 'standard input'}, line {number}"


def classify(
    run: Path,
    source: Path | None,
    output: Path | None,
    long: LongConfig | None,
    device: str,
    loader: ModelLoader,
    as_json: bool,
) -> None:
    check_distinct_files([output], [source])
    classifier = load_as(TextClassifier, run, device, "classify", loader)

    def predict(lines: list[str], before: int) -> Sequence[Label | Number]:
        texts: list[str | tuple[str, str]] = []
        for number, line in enumerate(lines, before + 1):
            first, *more = line.split("\t")
            if len(more) > 1:
                raise RegardError(f"{_where(source, number)}: {len(more) + 1} columns; write a text, or two")
            texts.append((first, more[0]) if more else line)
        return classifier.classify(texts, warn, before, long)

    _predict_lines(source, output, "Classifying", predict, lambda prediction: prediction.label, as_json)


def tag(
    run: Path, source: Path | None, output: Path | None, long: LongConfig | None, device: str, loader: ModelLoader,
    as_json: bool,
) -> None:  # fmt: skip
    check_distinct_files([output], [source])
    tagger = load_as(WordTagger, run, device, "tag", loader)

    def warn_cut(sentence: str) -> None:
        if "no words" not in sentence:
            warn(sentence)

    _predict_lines(
        source, output, "Tagging", lambda lines, before: tagger.tag(lines, warn_cut, before, long),
        lambda tags: " ".join(tags.tags), as_json,
    )  # fmt: skip


def answer(
    run: Path,
    source: Path | None,
    output: Path | None,
    long: LongConfig | None,
    device: str,
    loader: ModelLoader,
    as_json: bool,
) -> None:
    check_distinct_files([output], [source])
    answerer = load_as(QuestionAnswerer, run, device, "answer", loader)

    def predict(lines: list[str], before: int) -> list[Answer]:
        questions = []
        for number, line in enumerate(lines, before + 1):
            questions.append(parse_question_line(line, _where(source, number)) if line.strip() else ("", ""))
        return answerer.answer(questions, warn, before, long)

    _predict_lines(source, output, "Answering", predict, lambda answer: " ".join(answer.text.split()), as_json)


def choose(
    run: Path,
    source: Path | None,
    output: Path | None,
    long: LongConfig | None,
    device: str,
    loader: ModelLoader,
    as_json: bool,
) -> None:
    check_distinct_files([output], [source])
    chooser = load_as(OptionChooser, run, device, "choose", loader)
    earlier = 0

    def predict(lines: list[str], before: int) -> list[ChosenOption]:
        nonlocal earlier
        questions = []
        for number, line in enumerate(lines, before + 1):
            if line.strip():
                questions.append(parse_choice_line(line, _where(source, number)))
        chosen = iter(chooser.choose(questions, warn, earlier, long))
        earlier += len(questions)  # empty lines are no questions
        return [next(chosen) if line.strip() else ChosenOption(-1, "", []) for line in lines]

    _predict_lines(source, output, "Choosing", predict, lambda option: " ".join(option.text.split()), as_json)
