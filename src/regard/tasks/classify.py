"""Classification and regression: a text, or a pair of texts, in; a label or a number out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, TypeVar

import numpy as np
import torch

from regard.config import choice, option
from regard.data.config import Corpus
from regard.data.labelled import LabelledText, labelled_texts
from regard.errors import RegardError
from regard.evaluation.labels import class_metrics, number_metrics
from regard.examples.codec import ExampleCodec, Notes
from regard.examples.features import Feature
from regard.examples.long_text import LongConfig, Segments, Shortened, Truncate, shorten
from regard.models.bert import Bert
from regard.models.heads import BodyWithHead, SequenceClassifier, SequenceRegressor
from regard.predict.classification import Label, Number, TextClassifier
from regard.reporting import Json
from regard.tasks.finetuning import FinetuningConfig, defaults

OTHER_COUNT = {1: "single texts for a model trained on pairs", 2: "pairs for a model trained on single texts"}


P = TypeVar("P", Label, Number)


@dataclass(frozen=True)
class _TextRows(FinetuningConfig[LabelledText, P, Shortened]):
    """A text or a pair is a row; the longer of a pair is cut where it does not fit."""

    models: ClassVar[tuple[str, ...]] = ("bert", "lstm_lm", "lm")
    predictor_class: ClassVar[type[TextClassifier]] = TextClassifier
    length: int = option(128, "pieces of a row, marks included; of a pair the longer text is shortened first")

    symmetric: bool = option(
        False, "a pair is read in both orders, and what they give is added: for likeness, where neither text is first"
    )

    @property
    def orders(self) -> int:
        """The rows that an example is read as."""
        return 2 if self.symmetric else 1

    def examples(self, corpus: Corpus) -> Iterator[LabelledText]:
        return labelled_texts(corpus)

    def vocabulary_texts(self, example: LabelledText) -> Iterator[str]:
        return iter(example.texts)

    def target(self, example: LabelledText, codec: ExampleCodec[LabelledText, P, Shortened]) -> int | float | None:
        raise NotImplementedError

    def texts_per_example(self, examples: Sequence[LabelledText]) -> int:
        counts = {len(example.texts) for example in examples}
        return counts.pop() if len(counts) == 1 else 0

    def features(
        self,
        examples: Sequence[LabelledText],
        codec: ExampleCodec[LabelledText, P, Shortened],
        notes: Notes,
        training: bool,
    ) -> list[Feature[Shortened]]:
        pieces = iter(codec.tokenizer.encode_batch([text for example in examples for text in example.texts]))
        features: list[Feature[Shortened]] = []
        for example_index, example in enumerate(examples):
            sides = [next(pieces) for _ in example.texts]
            if training and not any(sides):
                notes.add("examples without text, dropped", example.where)
                continue
            if codec.texts_per_example and len(sides) != codec.texts_per_example:
                notes.add(OTHER_COUNT[len(sides)], example.where)
            if self.symmetric and len(sides) != 2:
                raise RegardError(f"{example.where}: one text, and task.symmetric reads a pair in both orders")
            target = self.target(example, codec)
            read, done = self._fit(example, sides, codec)
            notes.shortened(f"texts longer than task.length={self.length} pieces", done, example.where)
            for kept in read:
                orders = (kept, kept[::-1]) if self.symmetric else (kept,)
                rows = tuple(codec.special_tokens.row(*order) for order in orders)
                features.append(Feature(rows, example_index, target, done))
        return features

    def _fit(
        self, example: LabelledText, sides: list[list[int]], codec: ExampleCodec[LabelledText, P, Shortened]
    ) -> tuple[list[list[list[int]]], Shortened | None]:
        """For each row that is read the tokens of its texts, and what was done. Of two long texts one has segments."""
        lengths = [len(side) for side in sides]
        reads: list[list[list[int]]] = []  # of each text, row by row
        done: list[Shortened] = []
        for n, room in enumerate(codec.special_tokens.rooms(lengths, self.length)):
            cut = isinstance(self.long, Segments) and any(lengths[n] < other for other in lengths)
            read, how = shorten(
                Truncate() if cut else self.long, example.texts[n], sides[n], room, codec.tokenizer.encode_batch,
                example.where, " ".join(example.texts[m] for m in range(len(sides)) if m != n), codec.importance,
            )  # fmt: skip
            reads.append(read)
            done += [how] if how else []
        rows = [list(row) for row in product(*reads)]
        if len(done) < 2:
            return rows, done[0] if done else None
        tokens, dropped = (sum(vars(each)[name] for each in done) for name in ("tokens", "dropped"))
        return rows, Shortened(self.long.kind, tokens, dropped, len(rows))


@choice("classify")
class ClassifyConfig(_TextRows[Label]):
    """A text or a pair of texts gets one of the labels that training has seen."""

    metrics: ClassVar[dict[str, bool]] = {"accuracy": True, "f1": True, "matthews": True, "loss": False}
    defaults: ClassVar[Json] = defaults("accuracy")
    supports_label_smoothing: ClassVar[bool] = True

    def labels(self, examples: Sequence[LabelledText]) -> list[str]:
        labels = sort_labels({example.label for example in examples})
        if len(labels) < 2:
            raise RegardError(
                f"the training data has {len(labels)} label{'' if len(labels) == 1 else 's'} ({', '.join(labels)}); "
                "to classify there must be two"
            )
        return labels

    def build(self, body: Bert, labels: Sequence[str]) -> BodyWithHead:
        return SequenceClassifier(body, len(labels), self.frozen, self.orders)

    def target(self, example: LabelledText, codec: ExampleCodec[LabelledText, Label, Shortened]) -> int | None:
        return codec.label_id(example.label, example.where) if has_label(example) else None

    def merge(
        self,
        example: LabelledText,
        features: Sequence[Feature[Shortened]],
        scores: Sequence[np.ndarray],
        codec: ExampleCodec[LabelledText, Label, Shortened],
    ) -> Label:
        probabilities = dict(zip(codec.labels, pooled_shares(scores, self.long), strict=True))
        best = max(probabilities, key=lambda label: probabilities[label])
        return Label(best, probabilities, features[0].window)

    def compute_metrics(
        self,
        examples: Sequence[LabelledText],
        predictions: Sequence[Label],
        codec: ExampleCodec[LabelledText, Label, Shortened],
    ) -> Json:
        return class_metrics([e.label for e in examples], [p.label for p in predictions], codec.labels)


@choice("regress")
class RegressConfig(_TextRows[Number]):
    """A text or a pair of texts gets a number, such as how alike the two are."""

    metrics: ClassVar[dict[str, bool]] = {"pearson": True, "spearman": True, "loss": False}
    defaults: ClassVar[Json] = defaults("spearman")

    def build(self, body: Bert, labels: Sequence[str]) -> BodyWithHead:
        return SequenceRegressor(body, 1, self.frozen, self.orders)

    def target(self, example: LabelledText, codec: ExampleCodec[LabelledText, Number, Shortened]) -> float | None:
        if not has_label(example):
            return None
        try:
            value = float(example.label)
        except ValueError:
            value = float("nan")
        if not np.isfinite(value):
            raise RegardError(f"{example.where}: {example.label!r} is not a number")
        return value

    def merge(
        self,
        example: LabelledText,
        features: Sequence[Feature[Shortened]],
        scores: Sequence[np.ndarray],
        codec: ExampleCodec[LabelledText, Number, Shortened],
    ) -> Number:
        most = isinstance(self.long, Segments) and self.long.pool == "max"
        return Number(float(np.max(scores) if most else np.mean(scores)), features[0].window)

    def compute_metrics(
        self,
        examples: Sequence[LabelledText],
        predictions: Sequence[Number],
        codec: ExampleCodec[LabelledText, Number, Shortened],
    ) -> Json:
        return number_metrics([float(e.label) for e in examples], [p.value or 0.0 for p in predictions])


def pooled_shares(scores: Sequence[np.ndarray], long: LongConfig) -> list[float]:
    """Scores of one row, or of each segment, as probabilities."""
    if len(scores) > 1 and isinstance(long, Segments):
        return long.pooled(torch.from_numpy(np.stack(scores)).log_softmax(-1).numpy()).tolist()
    return torch.from_numpy(scores[0]).softmax(-1).tolist()


def sort_labels(labels: set[str]) -> list[str]:
    """Numbers by size, words by the alphabet."""
    try:
        return sorted(labels, key=lambda label: (float(label), label))
    except ValueError:
        return sorted(labels)


def has_label(example: LabelledText) -> bool:
    """Whether there is a label: an input of a predictor has none, an example of a file must have one."""
    if example.known and example.where and not example.label:
        raise RegardError(f"{example.where}: the label is empty")
    return bool(example.label)
