"""Questions about a text: answers are spans of it (SQuAD), or one of several options is right (DREAM, SWAG).

From SQuAD's and DREAM's JSON, SWAG's CSV, datasets of the catalog and .jsonl; and from one line, as users type them.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.catalog import find_file
from regard.data.config import Corpus
from regard.data.formats import read_json_data
from regard.data.labelled import LabelledRecord, labelled_records, layout_problem
from regard.data.readers import json_object, suffix
from regard.errors import RegardError, plural


class AnswerSpan(NamedTuple):
    start: int  # character of the context, from 0
    text: str


class Question(NamedTuple):
    where: str
    question: str
    context: str
    answers: tuple[AnswerSpan, ...]  # each is right; empty: the context has no answer
    known: bool = True  # whether the answers are known, even if there are none

    def located_answers(self) -> list[AnswerSpan]:
        """The answers that are found at their offsets."""
        return [span for span in self.answers if span.text and self.context.startswith(span.text, span.start)]


def read_questions(corpus: Corpus) -> Iterator[Question]:
    if corpus.path is not None and suffix(corpus.path) == ".json":
        yield from _squad(find_file(corpus.path))
        return
    for record in labelled_records(corpus):
        yield _question(record)


def _squad(path: Path) -> Iterator[Question]:
    try:
        for article in read_json_data(path)["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    values = {"context": paragraph["context"], **question}
                    yield _question(LabelledRecord(f"{path}, question {question['id']}", values))
    except (KeyError, TypeError, AttributeError) as error:
        raise RegardError(f"{path}: not laid out as SQuAD is: {layout_problem(error)}") from None


def _question(record: LabelledRecord) -> Question:
    spans = _spans(record.values.get("answers", []), record.where)
    if record.values.get("is_impossible"):
        spans = ()  # SQuAD 2.0 has plausible ones beside it, which are wrong
    return Question(record.where, record.text("question"), record.text("context"), spans)


def _spans(answers: Any, where: str) -> tuple[AnswerSpan, ...]:
    """As SQuAD writes them, a list of mappings, or as Hugging Face does, a mapping of lists."""
    try:
        if isinstance(answers, dict):
            pairs = list(zip(answers["text"], answers["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in answers]
        return tuple(AnswerSpan(int(start), str(text)) for text, start in pairs)
    except (KeyError, TypeError, ValueError):
        raise RegardError(f'{where}: answers must be [{{"text": …, "answer_start": …}}]') from None


# --- multiple choice -------------------------------------------------------------------------


class ChoiceQuestion(NamedTuple):
    where: str
    context: str
    question: str  # precedes each option; may be empty
    options: tuple[str, ...]
    answer: int | None = None  # index of the right option; None: not known


def read_multiple_choice(corpus: Corpus) -> Iterator[ChoiceQuestion]:
    if corpus.path is not None and suffix(corpus.path) == ".json":
        records = _dream(find_file(corpus.path))
    else:
        records = labelled_records(corpus)
    for record in records:
        choice = _swag(record) if "ending0" in record.values else _multiple_choice(record)
        if len(choice.options) < 2:
            raise RegardError(f"{record.where}: {len(choice.options)} options; there must be two to choose from")
        if choice.answer is None or not 0 <= choice.answer < len(choice.options):
            raise RegardError(f"{record.where}: the answer is none of the {len(choice.options)} options")
        yield choice


def _dream(path: Path) -> Iterator[LabelledRecord]:
    number = 0
    try:
        for turns, questions, _ in read_json_data(path):
            for question in questions:
                number += 1
                values = {"dialogue": turns, "question": question["question"], "choices": question["choice"]}
                yield LabelledRecord(f"{path}, question {number}", values | {"answer": question["answer"]})
    except (KeyError, TypeError, ValueError) as error:
        raise RegardError(f"{path}: not laid out as DREAM is: {layout_problem(error)}") from None


def _multiple_choice(record: LabelledRecord) -> ChoiceQuestion:
    """context (or dialogue), question, options (or choices), and answer, by its number from 0 or its text."""
    context = " ".join(record.texts("dialogue")) if "dialogue" in record.values else record.text("context")
    question = record.text("question") if "question" in record.values else ""
    options = record.texts("choices" if "choices" in record.values else "options")
    answer = record.get("answer")
    if isinstance(answer, str):
        answer = options.index(answer) if answer in options else None
    elif isinstance(answer, bool) or not isinstance(answer, int):
        raise RegardError(f"{record.where}: answer must be the number of an option, from 0, or its text")
    return ChoiceQuestion(record.where, context, question, tuple(options), answer)


def _swag(record: LabelledRecord) -> ChoiceQuestion:
    """sent1 is read; sent2 goes on in each of the endings; label is the right one's number."""
    endings = sorted(
        (key for key in record.values if re.fullmatch(r"ending\d+", str(key))), key=lambda key: int(key[6:])
    )
    label = record.text("label").strip()
    if not label.isdigit():
        raise RegardError(f"{record.where}: the label {label!r} is not the number of an ending")
    options = tuple(record.text(key) for key in endings)
    return ChoiceQuestion(record.where, record.text("sent1"), record.text("sent2"), options, int(label))


# --- one line of text, with tabs or as JSON --------------------------------------------------


def parse_question_line(line: str, where: str) -> tuple[str, str]:
    """Question and text, from JSON or separated by a tab."""
    if _is_json(line):
        record = LabelledRecord(where, json_object(line, where))
        return record.text("question"), record.text("context")
    cells = line.split("\t")
    if len(cells) != 2:
        raise RegardError(f"{where}: {_count(cells, 'column', line)}; write question TAB text, or JSON")
    return cells[0], cells[1]


def parse_choice_line(line: str, where: str) -> tuple[str, str, list[str]]:
    """Text, question and options, from JSON or separated by tabs."""
    if _is_json(line):
        record = LabelledRecord(where, json_object(line, where))
        question = record.text("question") if "question" in record.values else ""
        context, options = record.text("context"), record.texts("options")
    else:
        cells = [*line.split("\t"), "", ""]
        context, question, options = cells[0], cells[1], cells[2:-2]
    if len(options) < 2:
        raise RegardError(
            f"{where}: {_count(options, 'option', line)}; write text TAB question TAB option TAB option, or JSON"
        )
    return context, question, options


def _count(cells: list[str], what: str, line: str) -> str:
    if line.lstrip().startswith("{") and not _is_json(line):
        return "JSON that is cut short"
    return plural(len(cells), what)


def _is_json(line: str) -> bool:
    return line.lstrip().startswith("{") and line.rstrip().endswith("}")  # a text may begin with a brace, too
