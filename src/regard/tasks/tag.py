"""Tagging: the words of a sentence in, a tag for each out.

A word's first piece carries its tag, in a language model its last; the others are input only. A sentence longer than a
row is read in windows that overlap, and a word gets the tag of the window in which it sees most on both sides.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.config import choice, option
from regard.data.config import Corpus
from regard.data.tagged import Scheme, TaggedSentence, tagged_sentences
from regard.errors import RegardError
from regard.evaluation.labels import tag_metrics
from regard.examples.codec import ExampleCodec, Notes
from regard.examples.features import Feature
from regard.examples.long_text import LongConfig, LongText, Segments, Shortened
from regard.examples.recipe_like import RecipeLike
from regard.examples.windows import word_windows
from regard.models.bert import Bert, BertConfig, layer_numbers
from regard.models.heads import IGNORE_INDEX, BodyWithHead, FeatureTagger, LayerFeatures, TextBatch, TokenClassifier
from regard.predict.tagging import Tags, WordTagger
from regard.reporting import Json, Progress
from regard.tasks.finetuning import FinetuningConfig, FinetuningTask, defaults


class WordWindow(NamedTuple):
    """The words of a sentence in a row: the number of the first, and the token at which each word is tagged."""

    begin: int
    places: list[int]
    long: Shortened | None = None  # where the sentence has several


Codec = ExampleCodec[TaggedSentence, Tags, WordWindow]


@choice("tag")
class TagConfig(FinetuningConfig[TaggedSentence, Tags, WordWindow]):
    """Every word of a sentence gets a tag, such as the entity it begins or goes on with."""

    models: ClassVar[tuple[str, ...]] = ("bert", "elmo", "lm")
    predictor_class: ClassVar[type[WordTagger]] = WordTagger
    metrics: ClassVar[dict[str, bool]] = {
        "f1": True, "precision": True, "recall": True, "accuracy": True, "loss": False,
    }  # fmt: skip
    defaults: ClassVar[Json] = defaults("f1")
    required_packages: ClassVar[tuple[str, ...]] = ("seqeval",)
    supports_label_smoothing: ClassVar[bool] = True

    target_unit: ClassVar[str] = "words"
    long_kinds: ClassVar[tuple[str, ...]] = ("segments", "refuse", "none")  # every word gets a tag

    length: int = option(256, "pieces of a row, special tokens included; longer sentences are read in windows")
    overlap: int = option(64, "pieces that a window shares with the one before")
    long: LongConfig = option(Segments, "what becomes of a sentence with more pieces than length (docs/long-text.md)")
    scheme: Scheme = option("bio", "bio; iob1, which becomes bio; or plain tags, such as parts of speech")
    frozen_features: LayerFeatures | None = option(
        None, "layers of training.init's BERT, frozen, which a small model reads; none: the body is fine-tuned"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.overlap < self.length - 2:
            raise ValueError(f"overlap must be from 0 to less than length - 2, not {self.overlap}")

    def check(self, recipe: RecipeLike) -> None:
        super().check(recipe)
        if self.frozen_features is not None:
            if not isinstance(recipe.model, BertConfig):
                raise ValueError(
                    f"task.frozen_features are a bert's, and the model is {recipe.model.kind}; leave them out"
                )
            try:
                layer_numbers(self.frozen_features.layers, recipe.model.layers)
            except ValueError as error:
                raise ValueError(f"task.frozen_features.layers: {error}") from None
        if self.scheme == "plain" and recipe.training.goal not in ("accuracy", "loss"):
            raise ValueError(
                f"training.goal: {recipe.training.goal} counts entities, which plain tags are not; write goal: accuracy"
            )

    def prepare(
        self, recipe: RecipeLike, home: Path | None, progress: Progress
    ) -> FinetuningTask[TaggedSentence, Tags, WordWindow]:
        if self.frozen_features is not None and not recipe.training.init:  # once trained, it needs it no more
            raise RegardError("task.frozen_features are of the run that training.init names, and it names none")
        return super().prepare(recipe, home, progress)

    def examples(self, corpus: Corpus) -> Iterator[TaggedSentence]:
        return tagged_sentences(corpus, self.scheme)

    def vocabulary_texts(self, example: TaggedSentence) -> Iterator[str]:
        return iter(example.words)

    def labels(self, examples: Sequence[TaggedSentence]) -> list[str]:
        tags = {tag for example in examples for tag in example.tags}
        if self.scheme == "plain":
            return sorted(tags)
        types = sorted({tag[2:] for tag in tags - {"O"}})  # an entity that is one word in training may be two later
        return ["O", *(f"{mark}-{kind}" for kind in types for mark in "BI")]

    def build(self, body: Bert, labels: Sequence[str]) -> BodyWithHead:
        if self.frozen_features is not None:
            return FeatureTagger(body, len(labels), self.frozen_features)
        return TokenClassifier(body, len(labels), self.frozen)

    def features(
        self, examples: Sequence[TaggedSentence], codec: Codec, notes: Notes, training: bool
    ) -> list[Feature[WordWindow]]:
        pieces = iter(codec.tokenizer.encode_batch([word for example in examples for word in example.words]))
        room, features = self.length - 2, []
        for example_index, example in enumerate(examples):
            words = [next(pieces)[:room] or [codec.tokenizer.unk] for _ in example.words]  # all have a first piece
            known = [codec.label_id(tag, example.location(n)) for n, tag in enumerate(example.tags)]
            if not words:
                notes.add("sentences without words, left out", example.where)
                continue
            cuts, done = self._windows([len(word) for word in words], room, example.where)
            notes.shortened(f"sentences longer than task.length={self.length} pieces", done, example.where)
            for begin, end in cuts:
                features.append(self._feature(example_index, begin, words[begin:end], known[begin:end], codec, done))
        return features

    def _windows(self, sizes: list[int], room: int, where: str) -> tuple[list[tuple[int, int]], Shortened | None]:
        """The words of each window, and what was done; words are never cut apart."""
        if sum(sizes) <= room:
            return [(0, len(sizes))], None
        if not isinstance(self.long, Segments):
            return [(0, len(sizes))], self.long.rows(LongText(where, sum(sizes)), room, self.overlap).shortened
        overlap = self.overlap if self.long.overlap is None else min(self.long.overlap, room - 1)
        windows = list(word_windows(sizes, room, overlap))
        return windows, Shortened("segments", sum(sizes), 0, len(windows))

    def _feature(
        self,
        example_index: int,
        begin: int,
        words: list[list[int]],
        known: list[int],
        codec: Codec,
        done: Shortened | None,
    ) -> Feature[WordWindow]:
        places = codec.special_tokens.word_positions(words)
        row = codec.special_tokens.row([piece for word in words for piece in word])
        return Feature((row,), example_index, known or None, WordWindow(begin, places, done))

    def count_targets(self, feature: Feature[WordWindow]) -> int:
        return len(feature.window.places) if feature.window else 0

    def classes(self, features: Sequence[Feature[WordWindow]], batch: TextBatch) -> Tensor:
        classes = torch.full_like(batch.ids, IGNORE_INDEX)  # [B, T]
        for n, feature in enumerate(features):
            assert feature.window is not None
            classes[n, feature.window.places] = torch.tensor(feature.target)
        return classes

    def merge(
        self,
        example: TaggedSentence,
        features: Sequence[Feature[WordWindow]],
        scores: Sequence[np.ndarray],
        codec: Codec,
    ) -> Tags:
        total = len(example.words)
        best, tags, shares = [-1.0] * total, [""] * total, [0.0] * total
        for feature, own in zip(features, scores, strict=True):
            assert feature.window is not None
            begin, places, _ = feature.window
            end = begin + len(places)
            likely = torch.from_numpy(own[places]).softmax(-1).max(-1)  # [words]
            for n, (share, label) in enumerate(
                zip(likely.values.tolist(), likely.indices.tolist(), strict=True), begin
            ):
                seen = min(np.inf if begin == 0 else n - begin, np.inf if end == total else end - 1 - n)
                if seen > best[n]:
                    best[n], tags[n], shares[n] = float(seen), codec.labels[label], share
        return Tags(example.words, tags, shares, features[0].window.long if features and features[0].window else None)

    def compute_metrics(self, examples: Sequence[TaggedSentence], predictions: Sequence[Tags], codec: Codec) -> Json:
        return tag_metrics([e.tags for e in examples], [p.tags for p in predictions], self.scheme != "plain")
