"""Answers: a question and a text in, the part of the text that answers it out.

A text that is longer than a row is read in windows that overlap, unless `long` says otherwise; the best span of all
windows is the answer. Pieces keep the characters they come from, so that an answer is a substring of the text, to the
letter.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np

from regard.config import choice, option
from regard.data.config import Corpus
from regard.data.questions import Question, read_questions
from regard.errors import utf8_errors
from regard.evaluation.squad import answer_metrics
from regard.examples.codec import ExampleCodec, Notes
from regard.examples.features import Feature
from regard.examples.long_text import LongConfig, LongText, Ranges, Segments, Shortened, take
from regard.models.bert import Bert
from regard.models.heads import BodyWithHead, SpanClassifier
from regard.predict.answering import Answer, QuestionAnswerer
from regard.reporting import Json
from regard.tasks.finetuning import FinetuningConfig, defaults
from regard.text import Tokenizer
from regard.text.passages import passage_spans

BEST = 20  # begins and ends of a window that are considered, as usual
_WORDS = re.compile(r"\w+|[^\w\s]")


class ContextWindow(NamedTuple):
    """The pieces of the context in a row: the first is token `place` of it; the characters of each in the text."""

    place: int
    spans: list[tuple[int, int]]
    run: list[int]  # by piece, which stretch of the context it is in: no answer spans what was left out between two
    long: Shortened | None = None


Codec = ExampleCodec[Question, Answer, ContextWindow]


@choice("answer")
class AnswerConfig(FinetuningConfig[Question, Answer, "ContextWindow"]):
    """A question is answered by a part of a text; where `empty`, also by nothing (SQuAD 2.0)."""

    predictor_class: ClassVar[type[QuestionAnswerer]] = QuestionAnswerer
    metrics: ClassVar[dict[str, bool]] = {"f1": True, "exact_match": True, "loss": False}
    defaults: ClassVar[Json] = defaults("f1")
    required_packages: ClassVar[tuple[str, ...]] = ()
    target_unit: ClassVar[str] = "windows"

    length: int = option(384, "pieces of a row, special tokens included; longer texts are read in windows")
    overlap: int = option(128, "pieces that a window shares with the one before")
    long: LongConfig = option(Segments, "what becomes of a text with more pieces than length (docs/long-text.md)")
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
        return read_questions(corpus)

    def vocabulary_texts(self, example: Question) -> Iterator[str]:
        return (" ".join(_WORDS.findall(text)) for text in (example.question, example.context))  # as offsets are kept

    def build(self, body: Bert, labels: Sequence[str]) -> BodyWithHead:
        return SpanClassifier(body, self.frozen)

    # --- questions to windows ----------------------------------------------------------------------------------

    def features(
        self, examples: Sequence[Question], codec: Codec, notes: Notes, training: bool
    ) -> list[Feature[ContextWindow]]:
        contexts = list(dict.fromkeys(example.context for example in examples))  # many questions have the same
        encoded = dict(zip(contexts, encode_with_offsets(codec.tokenizer, contexts), strict=True))
        questions = [
            pieces.ids for pieces in encode_with_offsets(codec.tokenizer, [example.question for example in examples])
        ]
        features: list[Feature[ContextWindow]] = []
        for example_index, (example, pieces) in enumerate(zip(examples, questions, strict=True)):
            self._note(example, pieces, notes, training)
            target = self._target(example, notes, training)
            if not training or target is not None:
                context = encoded[example.context]
                rows, done = self._fit(example, len(pieces[: self.question]), context, codec)
                notes.shortened(f"texts longer than task.length={self.length} pieces", done, example.where)
                features += self._windows(example_index, pieces[: self.question], context, rows, done, target, codec)
        return features

    def _note(self, example: Question, pieces: list[int], notes: Notes, training: bool) -> None:
        placed = example.located_answers()
        if len(placed) < len(example.answers) and (placed or not training):  # else it is dropped, which is noted then
            notes.add("questions with answers that do not stand where answer_start says", example.where)
        if len(pieces) > self.question:
            notes.add(f"questions longer than task.question={self.question} pieces, cut", example.where)

    def _target(self, example: Question, notes: Notes, training: bool) -> tuple[int, int] | None:
        """The characters of the first answer; (0, 0) where there is none; None where that is not known, or no use."""
        if placed := example.located_answers():
            return placed[0].start, placed[0].start + len(placed[0].text)
        if not example.known:
            return None
        if not example.answers and (self.empty or not training):
            return 0, 0
        if training and not example.answers:
            notes.add("questions without an answer, dropped (task.empty: true learns from them)", example.where)
        elif training:
            notes.add("questions without an answer where answer_start says, dropped", example.where)
        return None

    def _fit(
        self, example: Question, question: int, context: "Offsets", codec: Codec
    ) -> tuple[list[Ranges], Shortened | None]:
        """The pieces that are read of a context, window by window, beside a question of so many pieces."""
        room, count = self.length - 3 - question, len(context.ids)
        if count <= room:
            return [[(0, count)]], None
        text = LongText(example.where, count)
        if self.long.passages:
            spans = passage_spans(example.context)
            starts, ends = [start for start, _ in context.spans], [end for _, end in spans]
            bounds = [0, *np.searchsorted(starts, ends).tolist()]
            pieces = [context.ids[begin:end] for begin, end in pairwise(bounds)]
            scores = None if codec.importance is None else partial(codec.importance, pieces)
            passages = [example.context[begin:end] for begin, end in spans]
            text = LongText(example.where, count, passages, list(map(len, pieces)), example.question, scores)
        return self.long.rows(text, room, self.overlap)

    def _windows(
        self,
        example_index: int,
        question: list[int],
        context: "Offsets",
        rows: list[Ranges],
        done: Shortened | None,
        target: tuple[int, int] | None,
        codec: Codec,
    ) -> Iterator[Feature[ContextWindow]]:
        place = len(question) + 2
        for ranges in rows:
            spans = [span for begin, end in ranges for span in context.spans[begin:end]]
            run = [begin for begin, end in ranges for _ in range(begin, end)]
            window = ContextWindow(place, spans, run, done)
            row = codec.special_tokens.row(question, take(context.ids, ranges))
            yield Feature((row,), example_index, None if target is None else answer_tokens(window, target), window)

    # --- windows to answers ------------------------------------------------------------------------------------

    def merge(
        self, example: Question, features: Sequence[Feature[ContextWindow]], scores: Sequence[np.ndarray], codec: Codec
    ) -> Answer:
        answers = [
            answer
            for feature, own in zip(features, scores, strict=True)
            if feature.window is not None
            for answer in candidates(example.context, feature.window, own, self.longest)
        ]
        if self.empty:
            nothing = min((float(own[0].sum()) for own in scores), default=0.0)  # the window that is surest of a span
            answers.append(Answer("", score=nothing))
        long = features[0].window.long if features and features[0].window else None
        if not answers:
            return Answer("", long=long)
        best = max(answers, key=lambda answer: answer.score)
        shares = np.exp(np.array([answer.score for answer in answers]) - best.score)
        return replace(best, probability=float(1 / shares.sum()), long=long)

    def compute_metrics(self, examples: Sequence[Question], predictions: Sequence[Answer], codec: Codec) -> Json:
        references = [[span.text for span in example.answers] for example in examples]
        return answer_metrics([answer.text for answer in predictions], references)


class Offsets(NamedTuple):
    ids: list[int]
    spans: list[tuple[int, int]]  # the characters of the text that each piece comes from


def encode_with_offsets(tokenizer: Tokenizer, texts: Sequence[str]) -> list[Offsets]:
    """Pieces with their characters. BERT's tokenizer keeps these; others encode words and punctuation one by one."""
    if tokenizer.kind == "bert":
        with utf8_errors(texts):
            encodings = tokenizer.inner.encode_batch(list(texts), add_special_tokens=False)
        return [Offsets(encoding.ids, encoding.offsets) for encoding in encodings]
    words = [list(_WORDS.finditer(text)) for text in texts]
    pieces = iter(tokenizer.encode_batch([word[0] for row in words for word in row]))
    encoded = []
    for row in words:
        own = [(piece, word.span()) for word in row for piece in next(pieces)]
        encoded.append(Offsets([piece for piece, _ in own], [span for _, span in own]))
    return encoded


def answer_tokens(window: ContextWindow, target: tuple[int, int]) -> tuple[int, int]:
    """The first and last token of a row that hold these characters; (0, 0), its [CLS], if some are not in it."""
    (start, end), spans, place = target, window.spans, window.place
    if start == end or not spans or start < spans[0][0] or end > spans[-1][1]:
        return 0, 0
    first = next((n for n, (_, after) in enumerate(spans) if after > start), None)
    last = next((n for n in range(len(spans) - 1, -1, -1) if spans[n][0] < end), None)
    if first is None or last is None or last < first or window.run[first] != window.run[last]:
        return 0, 0
    begins = first and window.run[first] != window.run[first - 1] and start < spans[first][0]
    ends = last + 1 < len(spans) and window.run[last] != window.run[last + 1] and end > spans[last][1]
    return (0, 0) if begins or ends else (place + first, place + last)


def candidates(context: str, window: ContextWindow, scores: np.ndarray, longest: int) -> list[Answer]:
    """The spans of a window that its likeliest begins and ends make, none longer than so many pieces."""
    own = scores[window.place : window.place + len(window.spans)]  # [pieces, 2]
    begins, ends = (np.argsort(-own[:, side], kind="stable")[:BEST] for side in (0, 1))
    answers = []
    for begin in begins.tolist():
        for end in ends.tolist():
            if begin <= end < begin + longest and window.run[begin] == window.run[end]:
                start, after = window.spans[begin][0], window.spans[end][1]
                answers.append(Answer(context[start:after], start, after, float(own[begin, 0] + own[end, 1])))
    return answers
