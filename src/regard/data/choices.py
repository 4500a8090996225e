"""Questions with options of which one is right: DREAM's JSON, SWAG's CSV, the catalog's sets, and .jsonl."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from regard.data.config import Corpus
from regard.data.formats import whole_json
from regard.data.items import Item, items, misplaced
from regard.data.paths import find
from regard.data.readers import suffix
from regard.errors import RegardError


class Choice(NamedTuple):
    where: str
    context: str  # what is read
    question: str  # what stands before each option; may be empty
    options: tuple[str, ...]
    answer: int | None = None  # which option; none: that is not known


def choices(corpus: Corpus) -> Iterator[Choice]:
    if corpus.path is not None and suffix(corpus.path) == ".json":
        found = _dream(find(corpus.path))
    else:
        found = items(corpus)
    for item in found:
        choice = _swag(item) if "ending0" in item.values else _usual(item)
        if len(choice.options) < 2:
            raise RegardError(f"{item.where}: {len(choice.options)} options; there must be two to choose from")
        if choice.answer is None or not 0 <= choice.answer < len(choice.options):
            raise RegardError(f"{item.where}: the answer is none of the {len(choice.options)} options")
        yield choice


def _dream(path: Path) -> Iterator[Item]:
    number = 0
    try:
        for turns, asked, _ in whole_json(path):
            for question in asked:
                number += 1
                values = {"dialogue": turns, "question": question["question"], "choices": question["choice"]}
                yield Item(f"{path}, question {number}", values | {"answer": question["answer"]})
    except (KeyError, TypeError, ValueError) as error:
        raise RegardError(f"{path}: not laid out as DREAM is: {misplaced(error)}") from None


def _usual(item: Item) -> Choice:
    """context (or dialogue), question, options (or choices), and answer, by its number from 0 or its text."""
    context = " ".join(item.texts("dialogue")) if "dialogue" in item.values else item.text("context")
    question = item.text("question") if "question" in item.values else ""
    options = item.texts("choices" if "choices" in item.values else "options")
    answer = item.get("answer")
    if isinstance(answer, str):
        answer = options.index(answer) if answer in options else None
    elif isinstance(answer, bool) or not isinstance(answer, int):
        raise RegardError(f"{item.where}: answer must be the number of an option, from 0, or its text")
    return Choice(item.where, context, question, tuple(options), answer)


def _swag(item: Item) -> Choice:
    """sent1 is read; sent2 goes on in each of the endings; label is the right one's number."""
    endings = sorted((key for key in item.values if re.fullmatch(r"ending\d+", str(key))), key=lambda key: int(key[6:]))
    label = item.text("label").strip()
    if not label.isdigit():
        raise RegardError(f"{item.where}: the label {label!r} is not the number of an ending")
    options = tuple(item.text(key) for key in endings)
    return Choice(item.where, item.text("sent1"), item.text("sent2"), options, int(label))
