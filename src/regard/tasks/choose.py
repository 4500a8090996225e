"""Multiple choice: a text, a question and its options in, which option is right out.

Each option is a row, text [SEP] question option, and gets one score; a softmax over the options of a question is what
is learned. What does not fit is cut from the end of the text, so that every option is read whole.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch

from regard.config import choice, option
from regard.data.config import Corpus
from regard.data.questions import ChoiceQuestion, read_multiple_choice
from regard.evaluation.labels import accuracy
from regard.examples.codec import ExampleCodec, Notes
from regard.examples.features import Feature, pad_features
from regard.models.batch import TextBatch
from regard.models.bert import Bert
from regard.models.heads import BodyWithHead, MultipleChoice, MultipleChoiceBatch
from regard.predict.choosing import ChosenOption, OptionChooser
from regard.reporting import Json
from regard.tasks.finetuning import FinetuningConfig, defaults

Codec = ExampleCodec[ChoiceQuestion, ChosenOption, None]


@choice("choose")
class ChooseConfig(FinetuningConfig[ChoiceQuestion, ChosenOption, None]):
    """Of the options of a question the right one is chosen."""

    models: ClassVar[tuple[str, ...]] = ("bert", "lm")
    predictor_class: ClassVar[type[OptionChooser]] = OptionChooser
    metrics: ClassVar[dict[str, bool]] = {"accuracy": True, "loss": False}
    defaults: ClassVar[Json] = defaults("accuracy")

    batch: int = option(16, "questions of a micro-batch, with all their options")
    length: int = option(256, "pieces of a row, marks included; of a longer text the end is cut")

    def examples(self, corpus: Corpus) -> Iterator[ChoiceQuestion]:
        return read_multiple_choice(corpus)

    def vocabulary_texts(self, example: ChoiceQuestion) -> Iterator[str]:
        return iter((example.context, example.question, *example.options))

    def build(self, body: Bert, labels: Sequence[str]) -> BodyWithHead:
        return MultipleChoice(body, self.frozen)

    def features(
        self, examples: Sequence[ChoiceQuestion], codec: Codec, notes: Notes, training: bool
    ) -> list[Feature[None]]:
        encode = codec.tokenizer.encode_batch
        contexts = encode([example.context for example in examples])
        endings = iter(encode([f"{e.question} {o}".strip() for e in examples for o in e.options]))
        room, features = self.length - 3, list[Feature[None]]()
        for example_index, (example, context) in enumerate(zip(examples, contexts, strict=True)):
            sides = [next(endings) for _ in example.options]
            longest = max(map(len, sides))
            if longest + len(context) > room:
                notes.add(f"texts longer than task.length={self.length} pieces, cut", example.where)
            if longest > room:
                notes.add("options longer than a row, cut", example.where)
            rows = tuple(codec.special_tokens.row(context[: max(0, room - len(s))], s[:room]) for s in sides)
            features.append(Feature(rows, example_index, example.answer))
        return features

    def inputs(self, features: Sequence[Feature[None]], codec: Codec) -> TextBatch:
        inputs = pad_features(features, codec.special_tokens.pad)
        groups = torch.full((len(features), max(len(feature.rows) for feature in features)), -1)  # [Q, O]
        first = 0
        for n, feature in enumerate(features):
            groups[n, : len(feature.rows)] = torch.arange(first, first + len(feature.rows))
            first += len(feature.rows)
        return MultipleChoiceBatch(
            inputs.ids,
            inputs.real,
            segments=inputs.segments,
            rows=tuple(feature.example for feature in features),
            groups=groups,
        )

    def merge(
        self, example: ChoiceQuestion, features: Sequence[Feature[None]], scores: Sequence[np.ndarray], codec: Codec
    ) -> ChosenOption:
        shares = torch.from_numpy(scores[0][: len(example.options)]).softmax(-1).tolist()
        best = int(np.argmax(shares))
        return ChosenOption(best, example.options[best], shares)

    def compute_metrics(
        self, examples: Sequence[ChoiceQuestion], predictions: Sequence[ChosenOption], codec: Codec
    ) -> Json:
        return accuracy([int(example.answer or 0) for example in examples], [chosen.index for chosen in predictions])
