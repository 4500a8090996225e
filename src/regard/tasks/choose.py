"""Multiple choice: a text, a question and its options in, which option is right out.

Each option is a row, text [SEP] question option, and gets one score; a softmax over the options of a question is what
is learned. It is the text that is shortened, so that every option is read whole.
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
from regard.examples.long_text import Shortened, Truncate, shorten
from regard.models.batch import TextBatch
from regard.models.bert import Bert
from regard.models.heads import BodyWithHead, MultipleChoice, MultipleChoiceBatch
from regard.predict.choosing import ChosenOption, OptionChooser
from regard.reporting import Json
from regard.tasks.classify import pooled_shares
from regard.tasks.finetuning import FinetuningConfig, defaults

Codec = ExampleCodec[ChoiceQuestion, ChosenOption, Shortened]


@choice("choose")
class ChooseConfig(FinetuningConfig[ChoiceQuestion, ChosenOption, Shortened]):
    """Of the options of a question the right one is chosen."""

    models: ClassVar[tuple[str, ...]] = ("bert", "lm")
    predictor_class: ClassVar[type[OptionChooser]] = OptionChooser
    metrics: ClassVar[dict[str, bool]] = {"accuracy": True, "loss": False}
    defaults: ClassVar[Json] = defaults("accuracy")

    batch: int = option(16, "questions of a micro-batch, with all their options")
    length: int = option(256, "pieces of a row, marks included; it is the text that is shortened")

    def examples(self, corpus: Corpus) -> Iterator[ChoiceQuestion]:
        return read_multiple_choice(corpus)

    def vocabulary_texts(self, example: ChoiceQuestion) -> Iterator[str]:
        return iter((example.context, example.question, *example.options))

    def build(self, body: Bert, labels: Sequence[str]) -> BodyWithHead:
        return MultipleChoice(body, self.frozen)

    def features(
        self, examples: Sequence[ChoiceQuestion], codec: Codec, notes: Notes, training: bool
    ) -> list[Feature[Shortened]]:
        encode = codec.tokenizer.encode_batch
        contexts = encode([example.context for example in examples])
        endings = iter(encode([f"{e.question} {o}".strip() for e in examples for o in e.options]))
        room, features = self.length - 3, list[Feature[Shortened]]()
        for example_index, (example, context) in enumerate(zip(examples, contexts, strict=True)):
            sides = [next(endings) for _ in example.options]
            read, done = self._fit(example, context, sides, codec)
            notes.shortened(f"texts longer than task.length={self.length} pieces", done, example.where)
            if max(map(len, sides)) > room:
                notes.add("options longer than a row, cut", example.where)
            for contexts in read:
                rows = (codec.special_tokens.row(own, side[:room]) for own, side in zip(contexts, sides, strict=True))
                features.append(Feature(tuple(rows), example_index, example.answer, done))
        return features

    def _fit(
        self, example: ChoiceQuestion, context: list[int], sides: list[list[int]], codec: Codec
    ) -> tuple[list[list[list[int]]], Shortened | None]:
        """For each group of rows what each option's row reads of the text; a beginning leaves each its own room."""
        room = self.length - 3 - max(map(len, sides))
        question = " ".join((example.question, *example.options))
        read, done = shorten(
            self.long, example.context, context, max(0, room), codec.tokenizer.encode_batch, example.where, question,
            codec.importance,
        )  # fmt: skip
        if done and (room < 1 or self.long == Truncate()):
            own = [max(0, self.length - 3 - len(side)) for side in sides]
            return [[context[:n] for n in own]], Shortened("truncate", len(context), len(context) - min(own))
        return [[ids] * len(sides) for ids in read], done

    def inputs(self, features: Sequence[Feature[Shortened]], codec: Codec) -> TextBatch:
        inputs = pad_features(features, codec.special_tokens.pad, self.length)
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
        self,
        example: ChoiceQuestion,
        features: Sequence[Feature[Shortened]],
        scores: Sequence[np.ndarray],
        codec: Codec,
    ) -> ChosenOption:
        shares = pooled_shares([own[: len(example.options)] for own in scores], self.long)
        best = int(np.argmax(shares))
        return ChosenOption(best, example.options[best], shares, features[0].window)

    def compute_metrics(
        self, examples: Sequence[ChoiceQuestion], predictions: Sequence[ChosenOption], codec: Codec
    ) -> Json:
        return accuracy([int(example.answer or 0) for example in examples], [chosen.index for chosen in predictions])
