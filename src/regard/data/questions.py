"""Questions about a text whose answers stand in it: SQuAD's JSON (1.1, and 2.0, where some have none), .jsonl."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from regard.data.config import Corpus
from regard.data.formats import whole_json
from regard.data.items import Item, items, misplaced
from regard.data.paths import find
from regard.data.readers import suffix
from regard.errors import RegardError


class Span(NamedTuple):
    start: int  # character of the context, from 0
    text: str


class Question(NamedTuple):
    where: str
    question: str
    context: str
    answers: tuple[Span, ...]  # each is right; none: the context does not say it
    known: bool = True  # whether the answers are known, even if there are none

    def placed(self) -> list[Span]:
        """The answers that stand where they say."""
        return [span for span in self.answers if span.text and self.context.startswith(span.text, span.start)]


def questions(corpus: Corpus) -> Iterator[Question]:
    if corpus.path is not None and suffix(corpus.path) == ".json":
        yield from _squad(find(corpus.path))
        return
    for item in items(corpus):
        yield _question(item)


def _squad(path: Path) -> Iterator[Question]:
    try:
        for article in whole_json(path)["data"]:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    values = {"context": paragraph["context"], **asked}
                    yield _question(Item(f"{path}, question {asked['id']}", values))
    except (KeyError, TypeError, AttributeError) as error:
        raise RegardError(f"{path}: not laid out as SQuAD is: {misplaced(error)}") from None


def _question(item: Item) -> Question:
    spans = _spans(item.values.get("answers", []), item.where)
    if item.values.get("is_impossible"):
        spans = ()  # SQuAD 2.0 has plausible ones beside it, which are wrong
    return Question(item.where, item.text("question"), item.text("context"), spans)


def _spans(given: Any, where: str) -> tuple[Span, ...]:
    """As SQuAD writes them, a list of mappings, or as Hugging Face does, a mapping of lists."""
    try:
        if isinstance(given, dict):
            given = [{"text": t, "answer_start": s} for t, s in zip(given["text"], given["answer_start"], strict=True)]
        return tuple(Span(int(answer["answer_start"]), str(answer["text"])) for answer in given)
    except (KeyError, TypeError, ValueError):
        raise RegardError(f'{where}: answers must be [{{"text": …, "answer_start": …}}]') from None
