"""Example codec: examples to features, scores to predictions, for fine-tuned models. Knows no kind of example.

What differs between tasks is in their settings (tasks/finetuning.py).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar, cast

import numpy as np
from torch import nn

from regard.data.config import Corpus
from regard.errors import RegardError
from regard.examples.features import CausalRowBuilder, Feature, RowBuilder, W, score_features
from regard.examples.long_text import Importance, Shortened
from regard.examples.preparing import TOKENIZER
from regard.io.files import DamagedFile, read_json
from regard.models.batch import TextBatch
from regard.models.heads import BodyWithHead
from regard.reporting import Json, Progress
from regard.text import Tokenizer

LABELS = "labels.json"
E = TypeVar("E")  # an example
P = TypeVar("P")  # a prediction
READ = {"truncate": "cut short", "extract": "of which whole passages are read", "segments": "read in segments"}


class Notes:
    """What was dropped or truncated in making features: how often, and where first."""

    SHOWN = 20

    def __init__(self) -> None:
        self.places: dict[str, list[str]] = {}
        self.tokens = self.dropped = 0  # of texts that were too long

    def add(self, what: str, where: str) -> None:
        """`what` is a heading, such as "texts longer than a row, cut"."""
        self.places.setdefault(what, []).append(where)

    def shortened(self, what: str, done: Shortened | None, where: str) -> None:
        """`what` says which texts are too long, such as "texts longer than a row"."""
        if done is not None and done.kind in READ:
            self.add(f"{what}, {READ[done.kind]}", where)
            self.tokens, self.dropped = self.tokens + done.tokens, self.dropped + done.dropped

    def messages(self) -> list[str]:
        messages = []
        for what, places in self.places.items():
            more = len(places) - self.SHOWN
            shown = _by_file(places[: self.SHOWN]) + (f"; and {more:,} more" if more > 0 else "")
            messages.append(f"{what}: {len(places):,} ({shown})")
        if self.tokens:
            messages.append(f"long texts lost {self.dropped:,} of {self.tokens:,} tokens")
        return messages


def _by_file(places: Sequence[str]) -> str:
    """Places `FILE, line 3`, those of one file together: `FILE, line 3, 5, 8`."""
    by_file: dict[str, list[str]] = {}
    for place in places:
        file, _, number = place.rpartition(" ")
        by_file.setdefault(file, []).append(number)
    return "; ".join(f"{file} {', '.join(numbers)}".strip() for file, numbers in by_file.items())


class FeatureSettings(Protocol[E, P, W]):
    """What a codec needs of a fine-tuning task's settings."""

    @property
    def length(self) -> int: ...

    def read_examples(self, corpora: Sequence[Corpus]) -> list[E]: ...

    def features(
        self, examples: Sequence[E], codec: "ExampleCodec[E, P, W]", notes: Notes, training: bool
    ) -> list[Feature[W]]: ...

    def collate(self, features: Sequence[Feature[W]], codec: "ExampleCodec[E, P, W]") -> TextBatch: ...

    def count_targets(self, feature: Feature[W]) -> int: ...

    def merge(
        self, example: E, features: Sequence[Feature[W]], scores: Sequence[np.ndarray], codec: "ExampleCodec[E, P, W]"
    ) -> P: ...

    def compute_metrics(
        self, examples: Sequence[E], predictions: Sequence[P], codec: "ExampleCodec[E, P, W]"
    ) -> Json: ...


class ExampleCodec(Generic[E, P, W]):
    """A task's settings, tokenizer and labels: examples become features, and features' scores predictions.

    `causal`: for a language model, whose rows have other special tokens.
    """

    def __init__(
        self,
        settings: FeatureSettings[E, P, W],
        tokenizer: Tokenizer,
        labels: list[str],
        texts_per_example: int = 0,
        causal: bool = False,
    ) -> None:
        self.settings, self.tokenizer, self.labels = settings, tokenizer, labels
        self.special_tokens = CausalRowBuilder(tokenizer) if causal else RowBuilder(tokenizer)
        self.texts_per_example = texts_per_example  # 0: unknown, or it differs
        self.label_ids = {label: n for n, label in enumerate(labels)}
        self.importance: Importance | None = None  # of passages; a trained model says it

    def label_id(self, label: str, where: str) -> int:
        if label not in self.label_ids:
            shown = ", ".join(self.labels[:12]) + (", …" if len(self.labels) > 12 else "")
            raise RegardError(f"{where}: the label {label!r} was never seen in training, which has {shown}")
        return self.label_ids[label]

    def features(self, examples: Sequence[E], notes: Notes | None = None, training: bool = False) -> list[Feature[W]]:
        return self.settings.features(examples, self, Notes() if notes is None else notes, training)

    def collate(self, features: Sequence[Feature[W]]) -> TextBatch:
        return self.settings.collate(features, self)

    def predict(
        self, model: nn.Module, examples: Sequence[E], progress: Progress | None = None, notes: Notes | None = None
    ) -> tuple[list[P], float | None]:
        """A prediction for every example, and the mean loss of those whose targets are known; None: of none."""
        features = self.features(examples, notes)
        on_progress = (lambda n: progress("Measuring", n, len(features))) if progress else None
        scores, loss, measured = score_features(cast(BodyWithHead, model), features, self.collate, on_progress)
        by_example: list[list[int]] = [[] for _ in examples]
        for n, feature in enumerate(features):
            by_example[feature.example].append(n)
        predictions = [
            self.settings.merge(example, [features[n] for n in own], [scores[n] for n in own], self)
            for example, own in zip(examples, by_example, strict=True)
        ]
        targets = sum(map(self.settings.count_targets, measured))
        return predictions, loss / targets if targets else None

    def save(self, folder: Path) -> None:
        self.tokenizer.save(folder / TOKENIZER)
        if self.labels or self.texts_per_example:
            folder.mkdir(parents=True, exist_ok=True)
            content = {"labels": self.labels} | ({"texts": self.texts_per_example} if self.texts_per_example else {})
            text = json.dumps(content, ensure_ascii=False, indent=1)
            (folder / LABELS).write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def load(settings: FeatureSettings[E, P, W], home: Path, causal: bool = False) -> "ExampleCodec[E, P, W]":
        labels: list[str] = []
        texts, path = 0, home / LABELS
        if path.exists():
            try:
                content = read_json(path)
                labels, texts = [str(label) for label in content["labels"]], int(content.get("texts", 0))
            except (ValueError, KeyError, TypeError, OverflowError):
                raise DamagedFile(f"{path}: damaged: not a list of labels") from None
        return ExampleCodec(settings, Tokenizer.load(home / TOKENIZER), labels, texts, causal)
