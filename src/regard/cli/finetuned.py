"""`regard classify`, `tag`, `answer` and `choose`: a line in, the prediction of a fine-tuned model out, in order."""

import json
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from regard.cli.commands.options import LineOptions, long_config
from regard.cli.streams import batched_lines, input_lines, open_output, progress_bar, warn
from regard.data.questions import parse_choice_line, parse_question_line
from regard.errors import RegardError
from regard.predict.answering import Answer, QuestionAnswerer
from regard.predict.choosing import ChosenOption, OptionChooser
from regard.predict.classification import Label, Number, TextClassifier
from regard.predict.tagging import Tags, WordTagger


class Prediction(Protocol):
    def json(self) -> dict[str, object]: ...


P = TypeVar("P", bound=Prediction)


def _predict_lines(
    options: LineOptions, what: str, predict: Callable[[list[str], int], Sequence[P]], to_text: Callable[[P], str]
) -> None:
    """`predict` gives a prediction for each of some lines, of which the first has the number before it."""
    lines = input_lines(options.input)
    with open_output(options.output) as out, progress_bar(what) as report:
        done = 0
        for batch in batched_lines(lines, lines.ready):
            for prediction in predict(batch, done):
                done += 1
                row = {"line": done, **prediction.json()}
                out.write((json.dumps(row, ensure_ascii=False) if options.as_json else to_text(prediction)) + "\n")
            out.flush()
            report(done, 0)


def _where(options: LineOptions, number: int) -> str:
    return f"{options.input or 'standard input'}, line {number}"


def classify(options: LineOptions) -> None:
    long, classifier = long_config(options.long), options.load(TextClassifier, "classify")

    def predict(lines: list[str], before: int) -> Sequence[Label | Number]:
        texts: list[str | tuple[str, str]] = []
        for number, line in enumerate(lines, before + 1):
            first, *more = line.split("\t")
            if len(more) > 1:
                raise RegardError(f"{_where(options, number)}: {len(more) + 1} columns; write a text, or two")
            texts.append((first, more[0]) if more else line)
        return classifier.classify(texts, warn, before, long)

    _predict_lines(options, "Classifying", predict, lambda prediction: prediction.label)


def tag(options: LineOptions) -> None:
    long, tagger = long_config(options.long), options.load(WordTagger, "tag")

    def warn_cut(sentence: str) -> None:
        if "no words" not in sentence:
            warn(sentence)

    def predict(lines: list[str], before: int) -> Sequence[Tags]:
        return tagger.tag(lines, warn_cut, before, long)

    _predict_lines(options, "Tagging", predict, lambda tags: " ".join(tags.tags))


def answer(options: LineOptions) -> None:
    long, answerer = long_config(options.long), options.load(QuestionAnswerer, "answer")

    def predict(lines: list[str], before: int) -> list[Answer]:
        questions = []
        for number, line in enumerate(lines, before + 1):
            questions.append(parse_question_line(line, _where(options, number)) if line.strip() else ("", ""))
        return answerer.answer(questions, warn, before, long)

    _predict_lines(options, "Answering", predict, lambda answer: " ".join(answer.text.split()))


def choose(options: LineOptions) -> None:
    long, chooser = long_config(options.long), options.load(OptionChooser, "choose")
    earlier = 0

    def predict(lines: list[str], before: int) -> list[ChosenOption]:
        nonlocal earlier
        questions = []
        for number, line in enumerate(lines, before + 1):
            if line.strip():
                questions.append(parse_choice_line(line, _where(options, number)))
        chosen = iter(chooser.choose(questions, warn, earlier, long))
        earlier += len(questions)  # empty lines are no questions
        return [next(chosen) if line.strip() else ChosenOption(-1, "", []) for line in lines]

    _predict_lines(options, "Choosing", predict, lambda option: " ".join(option.text.split()))
