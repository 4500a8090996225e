"""Classification and regression: a text, or a pair of texts, in; a label or a number out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from regard.config import option
from regard.data.config import Corpus
from regard.data.labelled import Labelled, labelled
from regard.errors import RegardError
from regard.evaluation.labels import class_metrics, number_metrics
from regard.examples.codec import Notes, Reading
from regard.examples.features import Unit
from regard.models.heads import Classifier, Regressor
from regard.predict.classification import Label, Number, TextClassifier
from regard.tasks.finetuning import Finetuning, defaults

UNLIKE = {
    1: "texts are given alone to a model that has learned from pairs",
    2: "pairs are given to a model that has learned from single texts",
}


@dataclass(frozen=True)
class _Rows(Finetuning):
    """A text or a pair is a row; the longer of a pair is cut where it does not fit."""

    models: ClassVar[tuple[str, ...]] = ("bert", "lstm_lm")
    reads: ClassVar[type[TextClassifier]] = TextClassifier
    length: int = option(128, "pieces of a row, marks included; longer texts are cut, the longer of a pair first")

    def examples(self, corpus: Corpus) -> Iterator[Labelled]:
        return labelled(corpus)

    def words(self, example: Labelled) -> Iterator[str]:
        return iter(example.texts)

    def target(self, example: Labelled, reading: Reading) -> Any:
        raise NotImplementedError

    def texts(self, examples: Sequence[Labelled]) -> int:
        counts = {len(example.texts) for example in examples}
        return counts.pop() if len(counts) == 1 else 0

    def units(self, examples: Sequence[Labelled], reading: Reading, notes: Notes, learn: bool) -> list[Unit]:
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

    def labels(self, examples: Sequence[Labelled]) -> list[str]:
        found = ordered({example.label for example in examples})
        if len(found) < 2:
            raise RegardError(
                f"the training data has {len(found)} label{'' if len(found) == 1 else 's'} ({', '.join(found)}); "
                "to classify there must be two"
            )
        return found

    def build(self, body: Any, labels: Sequence[str]) -> nn.Module:
        return Classifier(body, len(labels), self.frozen)

    def target(self, example: Labelled, reading: Reading) -> int | None:
        return reading.known(example.label, example.where) if given(example) else None

    def merge(self, example: Labelled, units: Sequence[Unit], scores: Sequence[np.ndarray], reading: Reading) -> Label:
        shares = torch.from_numpy(scores[0]).softmax(-1).tolist()
        probabilities = dict(zip(reading.labels, shares, strict=True))
        return Label(max(probabilities, key=lambda label: probabilities[label]), probabilities)

    def measure(self, examples: Sequence[Labelled], said: Sequence[Label], reading: Reading) -> dict[str, Any]:
        return class_metrics([e.label for e in examples], [s.label for s in said], reading.labels)


@dataclass(frozen=True)
class RegressConfig(_Rows):
    """A text or a pair of texts gets a number, such as how alike the two are."""

    metrics: ClassVar[dict[str, bool]] = {"pearson": True, "spearman": True, "loss": False}
    defaults: ClassVar[dict[str, Any]] = defaults("spearman")

    kind: Literal["regress"] = "regress"

    def build(self, body: Any, labels: Sequence[str]) -> nn.Module:
        return Regressor(body, 1, self.frozen)

    def target(self, example: Labelled, reading: Reading) -> float | None:
        if not given(example):
            return None
        try:
            value = float(example.label)
        except ValueError:
            value = float("nan")
        if not np.isfinite(value):
            raise RegardError(f"{example.where}: {example.label!r} is not a number")
        return value

    def merge(self, example: Labelled, units: Sequence[Unit], scores: Sequence[np.ndarray], reading: Reading) -> Number:
        return Number(float(scores[0]))

    def measure(self, examples: Sequence[Labelled], said: Sequence[Number], reading: Reading) -> dict[str, Any]:
        return number_metrics([float(e.label) for e in examples], [s.value or 0.0 for s in said])


def ordered(labels: set[str]) -> list[str]:
    """Numbers by size, words by the alphabet."""
    try:
        return sorted(labels, key=lambda label: (float(label), label))
    except ValueError:
        return sorted(labels)


def given(example: Labelled) -> bool:
    """Whether there is a label: a text that is asked about has none, one of a file must have it."""
    if example.known and example.where and not example.label:
        raise RegardError(f"{example.where}: the label is empty")
    return bool(example.label)
