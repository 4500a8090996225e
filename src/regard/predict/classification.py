"""Classification and regression with a fine-tuned model: the label, or the number, of a text or a pair of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.data.labelled import LabelledText
from regard.errors import RegardError, require_list
from regard.examples.long_text import Long, Shortened, long_json
from regard.predict.base import FinetunedPredictor
from regard.predict.options import checked
from regard.reporting import Warn

Text = str | tuple[str, str]


@dataclass(frozen=True)
class Label:
    label: str  # empty for an empty text
    probabilities: dict[str, float]  # of all labels
    long: Shortened | None = None  # what was done with a text that was too long

    def json(self) -> dict[str, object]:
        return {"label": self.label, "probabilities": self.probabilities} | long_json(self.long)


@dataclass(frozen=True)
class Number:
    value: float | None  # None for an empty text
    long: Shortened | None = None

    @property
    def label(self) -> str:
        return "" if self.value is None else f"{self.value:.4f}"

    def json(self) -> dict[str, object]:
        return {"value": self.value} | long_json(self.long)


class TextClassifier(FinetunedPredictor):
    """`regard.load(folder)` returns this for a model of the tasks classify and regress."""

    @checked
    def classify(
        self, texts: Sequence[Text], warn: Warn | None = None, before: int = 0, long: Long | None = None
    ) -> "list[Label] | list[Number]":
        """The label or number of each text, or pair of texts; an empty one has none.

        `warn` gets sentences about texts that are cut, by their numbers (from `before` + 1 on). `long` says what
        becomes of longer texts, if not what the recipe says.
        """
        require_list(texts, "classify([text])", nested=True)
        pairs = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
        for n, pair in enumerate(pairs, before + 1):
            if len(pair) not in (1, 2):
                raise RegardError(f"text {n}: {len(pair)} texts; give one, or a pair")
        full = [any(side.strip() for side in pair) for pair in pairs]
        examples = [LabelledText(f"text {n}", pair, "", known=False) for n, pair in enumerate(pairs, before + 1)]
        predictions = iter(
            self.predict([each for each, there in zip(examples, full, strict=True) if there], warn, long)
        )
        empty: Any = Label("", {}) if self.labels else Number(None)
        return [next(predictions) if there else empty for there in full]
