"""Classification and regression: a text, or a pair of texts, in; a label or a number out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from regard.config import option
from regard.data.config import Corpus
from regard.data.labelled import LabelledText, labelled_texts
from regard.errors import RegardError, require_list
from regard.evaluation.labels import class_metrics, number_metrics
from regard.examples.codec import Notes, Reader, Reading
from regard.examples.features import Unit
from regard.models.heads import SequenceClassifier, SequenceRegressor
from regard.predict.arguments import checked
from regard.reporting import Warn
from regard.tasks.finetuning import Finetuning, defaults

Text = str | tuple[str, str]
UNLIKE = {
    1: "texts are given alone to a model that has learned from pairs",
    2: "pairs are given to a model that has learned from single texts",
}


@dataclass(frozen=True)
class Label:
    label: str  # empty for an empty text, of which nothing is said
    probabilities: dict[str, float]  # of all labels

    def json(self) -> dict[str, Any]:
        return {"label": self.label, "probabilities": self.probabilities}


@dataclass(frozen=True)
class Number:
    value: float | None  # none for an empty text

    @property
    def label(self) -> str:
        return "" if self.value is None else f"{self.value:.4f}"

    def json(self) -> dict[str, Any]:
        return {"value": self.value}


class TextClassifier(Reader):
    """`regard.load(folder)` gives one of these for the tasks classify and regress."""

    @checked
    def classify(
        self, texts: Sequence[Text], warn: Warn | None = None, before: int = 0
    ) -> "list[Label] | list[Number]":
        """What the model says of each text, or pair of texts; of an empty one it says nothing.

        `warn` is told which texts are cut, by their numbers (from `before` + 1 on).
        """
        require_list(texts, "classify([text])", nested=True)
        pairs = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
        for n, pair in enumerate(pairs, before + 1):
            if len(pair) not in (1, 2):
                raise RegardError(f"text {n}: {len(pair)} texts; give one, or a pair")
        full = [any(side.strip() for side in pair) for pair in pairs]
        asked = [LabelledText(f"text {n}", pair, "", known=False) for n, pair in enumerate(pairs, before + 1)]
        said = iter(self.say([each for each, there in zip(asked, full, strict=True) if there], warn))
        nothing: Any = Label("", {}) if self.labels else Number(None)
        return [next(said) if there else nothing for there in full]


@dataclass(frozen=True)
class _Rows(Finetuning):
    """A text or a pair is a row; the longer of a pair is cut where it does not fit."""

    models: ClassVar[tuple[str, ...]] = ("bert", "lstm_lm")
    reads: ClassVar[type[Reader]] = TextClassifier
    length: int = option(128, "pieces of a row, marks included; longer texts are cut, the longer of a pair first")

    def examples(self, corpus: Corpus) -> Iterator[LabelledText]:
        return labelled_texts(corpus)

    def words(self, example: LabelledText) -> Iterator[str]:
        return iter(example.texts)

    def target(self, example: LabelledText, reading: Reading) -> Any:
        raise NotImplementedError

    def texts(self, examples: Sequence[LabelledText]) -> int:
        counts = {len(example.texts) for example in examples}
        return counts.pop() if len(counts) == 1 else 0

    def units(self, examples: Sequence[LabelledText], reading: Reading, notes: Notes, learn: bool) -> list[Unit]:
        pieces = iter(reading.tokenizer.encode_batch([text for example in examples for text in example.texts]))
        units = []
        for owner, example in enumerate(examples):
            sides = [next(pieces) for _ in example.texts]
            if learn and not any(sides):
                notes.add("examples have no text and are dropped", example.where)
                continue
            if reading.texts and len(sides) != reading.texts:
                notes.add(UNLIKE[len(sides)], example.where)
            row, cut = reading.marks.fit(sides, self.length)
            if cut:
                notes.add(f"texts are longer than task.length={self.length} pieces and are cut", example.where)
            units.append(Unit((row,), owner, self.target(example, reading)))
        return units


@dataclass(frozen=True)
class ClassifyConfig(_Rows):
    """A text or a pair of texts gets one of the labels that training has seen."""

    metrics: ClassVar[dict[str, bool]] = {"accuracy": True, "f1": True, "matthews": True, "loss": False}
    defaults: ClassVar[dict[str, Any]] = defaults("accuracy")
    smooths: ClassVar[bool] = True

    kind: Literal["classify"] = "classify"

    def labels(self, examples: Sequence[LabelledText]) -> list[str]:
        found = ordered({example.label for example in examples})
        if len(found) < 2:
            raise RegardError(
                f"the training data has {len(found)} label{'' if len(found) == 1 else 's'} ({', '.join(found)}); "
                "to classify there must be two"
            )
        return found

    def build(self, body: Any, labels: Sequence[str]) -> nn.Module:
        return SequenceClassifier(body, len(labels), self.frozen)

    def target(self, example: LabelledText, reading: Reading) -> int | None:
        return reading.known(example.label, example.where) if given(example) else None

    def merge(
        self, example: LabelledText, units: Sequence[Unit], scores: Sequence[np.ndarray], reading: Reading
    ) -> Label:
        shares = torch.from_numpy(scores[0]).softmax(-1).tolist()
        probabilities = dict(zip(reading.labels, shares, strict=True))
        return Label(max(probabilities, key=lambda label: probabilities[label]), probabilities)

    def measure(self, examples: Sequence[LabelledText], said: Sequence[Label], reading: Reading) -> dict[str, Any]:
        return class_metrics([e.label for e in examples], [s.label for s in said], reading.labels)


@dataclass(frozen=True)
class RegressConfig(_Rows):
    """A text or a pair of texts gets a number, such as how alike the two are."""

    metrics: ClassVar[dict[str, bool]] = {"pearson": True, "spearman": True, "loss": False}
    defaults: ClassVar[dict[str, Any]] = defaults("spearman")

    kind: Literal["regress"] = "regress"

    def build(self, body: Any, labels: Sequence[str]) -> nn.Module:
        return SequenceRegressor(body, 1, self.frozen)

    def target(self, example: LabelledText, reading: Reading) -> float | None:
        if not given(example):
            return None
        try:
            value = float(example.label)
        except ValueError:
            value = float("nan")
        if not np.isfinite(value):
            raise RegardError(f"{example.where}: {example.label!r} is not a number")
        return value

    def merge(
        self, example: LabelledText, units: Sequence[Unit], scores: Sequence[np.ndarray], reading: Reading
    ) -> Number:
        return Number(float(scores[0]))

    def measure(self, examples: Sequence[LabelledText], said: Sequence[Number], reading: Reading) -> dict[str, Any]:
        return number_metrics([float(e.label) for e in examples], [s.value or 0.0 for s in said])


def ordered(labels: set[str]) -> list[str]:
    """Numbers by size, words by the alphabet."""
    try:
        return sorted(labels, key=lambda label: (float(label), label))
    except ValueError:
        return sorted(labels)


def given(example: LabelledText) -> bool:
    """Whether there is a label: a text that is asked about has none, one of a file must have it."""
    if example.known and example.where and not example.label:
        raise RegardError(f"{example.where}: the label is empty")
    return bool(example.label)
