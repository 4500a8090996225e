"""Answers: a question and a text in, the part of the text that answers it out.

A text that is longer than a row is read in windows that overlap; the best span of all windows is the answer. Pieces
keep the characters they come from, so that an answer is a substring of the text, to the letter.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from torch import nn

from regard.config import option
from regard.data.config import Corpus
from regard.data.questions import Question, questions
from regard.errors import characters
from regard.evaluation.squad import answer_metrics
from regard.examples.codec import Notes, Reading
from regard.examples.features import Unit, windows
from regard.models.heads import Answerer
from regard.predict.answering import Answer, QuestionAnswerer
from regard.tasks.finetuning import Finetuning, defaults
from regard.text import Tokenizer

BEST = 20  # begins and ends of a window that are considered, as usual
_WORDS = re.compile(r"\w+|[^\w\s]")


class Part(NamedTuple):
    """The pieces of the context that a row has: the first stands at `place`; where each stood in the text."""

    place: int
    spans: list[tuple[int, int]]


@dataclass(frozen=True)
class AnswerConfig(Finetuning):
    """A question is answered by a part of a text; where `empty`, also by nothing (SQuAD 2.0)."""

    reads: ClassVar[type[QuestionAnswerer]] = QuestionAnswerer
    metrics: ClassVar[dict[str, bool]] = {"f1": True, "exact_match": True, "loss": False}
    defaults: ClassVar[dict[str, Any]] = defaults("f1")
    needs: ClassVar[tuple[str, ...]] = ()
    counted: ClassVar[str] = "windows"

    kind: Literal["answer"] = "answer"
    length: int = option(384, "pieces of a row, marks included; longer texts are read in windows")
    overlap: int = option(128, "pieces that a window shares with the one before")
    question: int = option(64, "pieces of a question; longer ones are cut")
    longest: int = option(30, "pieces of an answer")
    empty: bool = option(False, "there may be no answer; it is given where that is likelier than any span")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.question < 1 or self.longest < 1:
            raise ValueError("question and longest must be at least 1")
        room = self.length - 3 - self.question
        if room < 1:
            least = f"length must be at least question + 4, which is {self.question + 4}, not {self.length}"
            raise ValueError(f"{least}; raise length, or lower question")
        if not 0 <= self.overlap < room:
            raise ValueError(
                f"overlap must be from 0 to less than length - 3 - question, which is {room}, not {self.overlap}"
            )

    def examples(self, corpus: Corpus) -> Iterator[Question]:
        return questions(corpus)

    def words(self, example: Question) -> Iterator[str]:
        return (" ".join(_WORDS.findall(text)) for text in (example.question, example.context))  # as `located` cuts

    def build(self, body: Any, labels: Sequence[str]) -> nn.Module:
        return Answerer(body, self.frozen)

    # --- questions as windows ----------------------------------------------------------------------------------

    def units(self, examples: Sequence[Question], reading: Reading, notes: Notes, learn: bool) -> list[Unit]:
        contexts = list(dict.fromkeys(example.context for example in examples))  # many questions have the same
        placed = dict(zip(contexts, located(reading.tokenizer, contexts), strict=True))
        asked = [found.ids for found in located(reading.tokenizer, [example.question for example in examples])]
        units: list[Unit] = []
        for owner, (example, pieces) in enumerate(zip(examples, asked, strict=True)):
            self._note(example, pieces, notes, learn)
            target = self._target(example, notes, learn)
            if not learn or target is not None:
                units += self._windows(owner, pieces[: self.question], placed[example.context], target, reading)
        return units

    def _note(self, example: Question, pieces: list[int], notes: Notes, learn: bool) -> None:
        placed = example.placed()
        if len(placed) < len(example.answers) and (placed or not learn):  # else it is dropped, which is noted then
            notes.add("questions have answers that do not stand where answer_start says", example.where)
        if len(pieces) > self.question:
            notes.add(f"questions are longer than task.question={self.question} pieces and are cut", example.where)

    def _target(self, example: Question, notes: Notes, learn: bool) -> tuple[int, int] | None:
        """The characters of the first answer; (0, 0) where there is none; None where that is not known, or no use."""
        if placed := example.placed():
            return placed[0].start, placed[0].start + len(placed[0].text)
        if not example.known:
            return None
        if not example.answers and (self.empty or not learn):
            return 0, 0
        if learn and not example.answers:
            notes.add("questions have no answer and are dropped; task.empty: true learns from them", example.where)
        elif learn:
            notes.add("questions have no answer that stands where answer_start says, and are dropped", example.where)
        return None

    def _windows(
        self, owner: int, asked: list[int], pieces: "Located", target: tuple[int, int] | None, reading: Reading
    ) -> Iterator[Unit]:
        room = self.length - 3 - len(asked)
        place = len(asked) + 2
        for begin, end in windows([1] * len(pieces.ids), room, self.overlap):
            spans = pieces.spans[begin:end]
            row = reading.marks.row(asked, pieces.ids[begin:end])
            yield Unit((row,), owner, None if target is None else within(spans, target, place), Part(place, spans))

    # --- windows as answers ------------------------------------------------------------------------------------

    def merge(self, example: Question, units: Sequence[Unit], scores: Sequence[np.ndarray], reading: Reading) -> Answer:
        found = [
            answer
            for unit, own in zip(units, scores, strict=True)
            for answer in candidates(example.context, unit.part, own, self.longest)
        ]
        if self.empty:
            nothing = min((float(own[0].sum()) for own in scores), default=0.0)  # the window that is surest of a span
            found.append(Answer("", score=nothing))
        if not found:
            return Answer("")
        best = max(found, key=lambda answer: answer.score)
        shares = np.exp(np.array([answer.score for answer in found]) - best.score)
        return replace(best, probability=float(1 / shares.sum()))

    def measure(self, examples: Sequence[Question], said: Sequence[Answer], reading: Reading) -> dict[str, Any]:
        right = [[span.text for span in example.answers] for example in examples]
        return answer_metrics([answer.text for answer in said], right)


class Located(NamedTuple):
    ids: list[int]
    spans: list[tuple[int, int]]  # the characters of the text that each piece comes from


def located(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Located]:
    """Pieces with their characters. BERT's rules keep them; others are given words and marks one by one."""
    if tokenizer.kind == "bert":
        with characters(texts):
            found = tokenizer.inner.encode_batch(list(texts), add_special_tokens=False)
        return [Located(encoding.ids, encoding.offsets) for encoding in found]
    words = [list(_WORDS.finditer(text)) for text in texts]
    pieces = iter(tokenizer.encode_batch([word[0] for row in words for word in row]))
    made = []
    for row in words:
        own = [(piece, word.span()) for word in row for piece in next(pieces)]
        made.append(Located([piece for piece, _ in own], [span for _, span in own]))
    return made


def within(spans: Sequence[tuple[int, int]], target: tuple[int, int], place: int) -> tuple[int, int]:
    """Where in a row the pieces of these characters begin and end; (0, 0), its first place, if some are not there."""
    start, end = target
    if start == end or not spans or start < spans[0][0] or end > spans[-1][1]:
        return 0, 0
    first = next((n for n, (_, after) in enumerate(spans) if after > start), None)
    last = next((n for n in range(len(spans) - 1, -1, -1) if spans[n][0] < end), None)
    return (0, 0) if first is None or last is None or last < first else (place + first, place + last)


def candidates(context: str, part: Part, scores: np.ndarray, longest: int) -> list[Answer]:
    """The spans of a window that its likeliest begins and ends make, none longer than so many pieces."""
    own = scores[part.place : part.place + len(part.spans)]  # [pieces, 2]
    begins, ends = (np.argsort(-own[:, side], kind="stable")[:BEST] for side in (0, 1))
    found = []
    for begin in begins.tolist():
        for end in ends.tolist():
            if begin <= end < begin + longest:
                start, after = part.spans[begin][0], part.spans[end][1]
                found.append(Answer(context[start:after], start, after, float(own[begin, 0] + own[end, 1])))
    return found
