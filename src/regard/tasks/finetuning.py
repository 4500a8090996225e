"""Fine-tuning: what the tasks that put a small head on a body, such as a BERT or GPT, have in common.

What differs is in each task's own file.

A task reads examples, makes features of them, and merges the scores of an example's features into a prediction. The
head is new; the body has the weights of `training.init`, and that run's vocabulary.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import at_least, option
from regard.data.config import Corpus
from regard.errors import RegardError
from regard.evaluation.labels import require_packages
from regard.examples.codec import E, ExampleCodec, Notes, P
from regard.examples.features import Feature, FeatureView, W, pad_features
from regard.examples.long_text import Extract, LongConfig, Truncate, check_long
from regard.examples.preparing import TOKENIZER
from regard.examples.recipe_like import RecipeLike
from regard.examples.vocabulary import load_or_train_tokenizer
from regard.models.batch import TextBatch
from regard.models.bert import Bert, BertConfig
from regard.models.elmo import Elmo
from regard.models.heads import BodyWithHead
from regard.models.lm import LanguageModelConfig
from regard.models.lstm import LstmConfig
from regard.predict.base import FinetunedPredictor
from regard.predict.options import EvaluateOptions, text_corpora
from regard.reporting import Json, Progress
from regard.tasks.contract import BaseTask, TaskConfig
from regard.tasks.recipe_checks import check_lengths, check_no_sampling
from regard.text import Tokenizer

TRAINING: Json = {  # as BERT is fine-tuned (Devlin 2019, A.3)
    "label_smoothing": 0.0,
    "clip": 1.0,
    "optimiser": {"kind": "adamw", "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.01},
    "schedule": {"kind": "linear", "peak": 5e-5, "warmup": 100},
    "tokens_per_batch": 65536,
}


def defaults(goal: str) -> Json:
    return {"text": {"kind": "bert"}, "model": {"kind": "bert"}, "training": TRAINING | {"goal": goal}}


@dataclass(frozen=True)
class FinetuningConfig(TaskConfig, Generic[E, P, W]):
    """The settings that all have. A subclass has `kind`, `metrics`, `defaults`, and the methods that raise here."""

    models: ClassVar[tuple[str, ...]] = ("bert",)
    metrics: ClassVar[Mapping[str, bool]] = {}
    defaults: ClassVar[Json] = {}
    predictor_class: ClassVar[type[FinetunedPredictor]] = FinetunedPredictor  # the type of `regard.load`
    evaluate_options: ClassVar[tuple[str, ...]] = ("text",)
    required_packages: ClassVar[tuple[str, ...]] = ("scikit-learn",)  # of its metrics
    supports_label_smoothing: ClassVar[bool] = False
    target_unit: ClassVar[str] = "examples"
    long_kinds: ClassVar[tuple[str, ...]] = ("truncate", "extract", "segments", "refuse", "none")

    batch: int = option(32, "examples of a micro-batch; training.tokens_per_batch bounds it too")
    length: int = option(128, "pieces of a row, special tokens included")
    long: LongConfig = option(Truncate, "what becomes of a text with more pieces than length (docs/long-text.md)")
    limit: int = option(0, "learn from the first so many training examples alone; 0: all")
    frozen: bool = option(False, "learn the head and its pooler alone; the body stays as training.init gives it")

    lm_weight: float = option(0.0, "of the next tokens' loss, which is added where the model is an lm (its paper: 0.5)")

    def __post_init__(self) -> None:
        at_least(self, 1, "batch")
        at_least(self, 0, "lm_weight")
        if self.limit < 0:
            raise ValueError(f"limit must be 0 or more, not {self.limit}")
        at_least(self, 8, "length")
        check_long(self.long, self.long_kinds, self.kind)

    def check(self, recipe: RecipeLike) -> None:
        if self.frozen and not recipe.training.init:
            raise ValueError("task.frozen leaves the body as training.init gives it, and training.init names nothing")
        if self.lm_weight and (self.frozen or not isinstance(recipe.model, LanguageModelConfig)):
            which = "stays as it is (task.frozen)" if self.frozen else f"{recipe.model.kind} has none"
            raise ValueError(f"task.lm_weight is of the loss of an lm's next tokens, and the model {which}; write 0")
        if recipe.training.label_smoothing and not self.supports_label_smoothing:
            raise ValueError(f"training.label_smoothing means nothing to the task {self.kind}; write 0")
        if isinstance(recipe.model, BertConfig) and recipe.model.segments < 2:
            raise ValueError(f"model.segments must be at least 2 for the task {self.kind}: it tells two texts apart")
        if isinstance(self.long, Extract) and self.long.by == "attention":
            raise ValueError("task.long.by: attention needs a model that is trained; learn with tfidf or centrality")
        check_lengths(recipe, self.length)

    # --- what differs between tasks ----------------------------------------------------------------------------

    def examples(self, corpus: Corpus) -> Iterator[E]:
        """The examples of a corpus; each has `where`, its file and line."""
        raise NotImplementedError

    def vocabulary_texts(self, example: E) -> Iterator[str]:
        """The texts of an example, from which a vocabulary is learned where there is none."""
        raise NotImplementedError

    def labels(self, examples: Sequence[E]) -> list[str]:
        """The labels of the training data; tasks without labels have none."""
        return []

    def texts_per_example(self, examples: Sequence[E]) -> int:
        """How many texts each example of the training data has, where all have as many and inputs may have others."""
        return 0

    def build(self, body: Bert, labels: Sequence[str]) -> BodyWithHead:
        """The body with its head."""
        raise NotImplementedError

    def features(
        self, examples: Sequence[E], codec: ExampleCodec[E, P, W], notes: Notes, training: bool
    ) -> list[Feature[W]]:
        """The features of the examples; `training` drops those without a target, and notes that."""
        raise NotImplementedError

    def collate(self, features: Sequence[Feature[W]], codec: ExampleCodec[E, P, W]) -> TextBatch:
        """A batch, with classes where all targets are known."""
        batch = self.inputs(features, codec)
        known = all(feature.target is not None for feature in features)
        return replace(batch, classes=self.classes(features, batch)) if known else batch

    def inputs(self, features: Sequence[Feature[W]], codec: ExampleCodec[E, P, W]) -> TextBatch:
        """The batch without classes."""
        padded = pad_features(features, codec.special_tokens.pad, self.length)
        return replace(padded, rows=tuple(feature.example for feature in features))

    def classes(self, features: Sequence[Feature[W]], batch: TextBatch) -> Tensor:
        return torch.tensor([feature.target for feature in features])

    def count_targets(self, feature: Feature[W]) -> int:
        return 1

    def merge(
        self, example: E, features: Sequence[Feature[W]], scores: Sequence[np.ndarray], codec: ExampleCodec[E, P, W]
    ) -> P:
        """The prediction for an example, from the scores of all its features."""
        raise NotImplementedError

    def compute_metrics(self, examples: Sequence[E], predictions: Sequence[P], codec: ExampleCodec[E, P, W]) -> Json:
        """The metrics of the predictions, with signatures, without the loss."""
        raise NotImplementedError

    # --- from files to a task or a trained model ---------------------------------------------------------------

    def build_model(self, recipe: RecipeLike, codec: ExampleCodec[E, P, W]) -> BodyWithHead:
        config = recipe.model
        build_body = config.body if isinstance(config, LstmConfig | LanguageModelConfig) else config.build
        model = self.build(cast(Bert, build_body(codec.special_tokens.entries)), codec.labels)
        model.lm_weight = self.lm_weight
        if isinstance(config, LanguageModelConfig) and config.output == "own" and not self.lm_weight:
            model.body.output.requires_grad_(False)  # nothing scores words
        return model

    def load_predictor(self, recipe: RecipeLike, home: Path) -> FinetunedPredictor:
        codec = ExampleCodec.load(self, home, isinstance(recipe.model, LanguageModelConfig))
        return self.predictor_class(self.build_model(recipe, codec), codec, recipe)

    def prepare(self, recipe: RecipeLike, home: Path | None, progress: Progress) -> "FinetuningTask[E, P, W]":
        require_packages(self.required_packages)
        try:
            check_no_sampling(recipe)  # here, since it changes nothing of a model that is trained
        except ValueError as error:
            raise RegardError(str(error)) from None
        weighted = self.read_weighted_examples(recipe.data.train)[: self.limit or None]
        train = [example for _, example in weighted]
        valid, test = self.read_examples(recipe.data.valid), self.read_examples(recipe.data.test)  # mistakes come now
        if home is not None:
            tokenizer = Tokenizer.load(home / TOKENIZER)
        else:
            texts = lambda: (text for example in train for text in self.vocabulary_texts(example))  # noqa: E731
            tokenizer = load_or_train_tokenizer(recipe, texts, "en", self.kind)
        causal = isinstance(recipe.model, LanguageModelConfig)
        codec = ExampleCodec(self, tokenizer, self.labels(train), self.texts_per_example(train), causal)
        progress("Encoding examples", len(train), 0)
        task = FinetuningTask(self, recipe, codec, train, valid, np.array([weight for weight, _ in weighted]))
        codec.features(test)  # a label that was never seen is an error now, not in the end
        return task

    def read_examples(self, corpora: Sequence[Corpus]) -> list[E]:
        return [example for _, example in self.read_weighted_examples(corpora)]

    def read_weighted_examples(self, corpora: Sequence[Corpus]) -> list[tuple[float, E]]:
        """All examples, with the weight of the corpus that each comes from."""
        weighted = [(corpus.weight, example) for corpus in corpora for example in self.examples(corpus)]
        if corpora and not weighted:
            raise RegardError(f"{', '.join(corpus.name for corpus in corpora)}: there are no examples")
        return weighted

    def evaluate(
        self,
        predictor: FinetunedPredictor,
        split: str | None,
        options: EvaluateOptions,
        progress: Progress | None = None,
    ) -> Json:
        corpora = text_corpora(predictor.recipe, split, options.get("text"))
        return predictor.evaluate(corpora, progress)


class FinetuningTask(BaseTask, Generic[E, P, W]):
    def __init__(
        self,
        settings: FinetuningConfig[E, P, W],
        recipe: RecipeLike,
        codec: ExampleCodec[E, P, W],
        train: Sequence[E],
        valid: Sequence[E],
        weights: np.ndarray,
    ) -> None:
        super().__init__(recipe)
        self.codec, self.settings, self.target_unit = codec, settings, settings.target_unit
        self.train_notes, self.valid_notes = Notes(), Notes()
        self.train, self.valid = train, valid[: recipe.training.validation.lines or None]
        self.features = codec.features(train, self.train_notes, training=True)
        if not self.features:
            raise RegardError(f"no examples are left to learn from. {'. '.join(self.train_notes.messages())}")
        codec.features(valid, self.valid_notes)
        self.weights = weights[[feature.example for feature in self.features]]
        self.fingerprint = self._fingerprint()

    def _fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=12)
        digest.update(json.dumps([self.codec.tokenizer.fingerprint, self.codec.labels]).encode())
        for feature in self.features:
            digest.update(np.array([n for row in feature.rows for n in row.ids], dtype=np.int32).tobytes())
            digest.update(repr(feature.target).encode())
        return digest.hexdigest()

    def report(self) -> list[str]:
        labels = f", {len(self.codec.labels)} labels" if self.codec.labels else ""
        rows = sum(len(feature.rows) for feature in self.features)
        return [
            *self.codec.tokenizer.notes(),
            f"{len(self.train):,} examples in {rows:,} rows{labels}",
            *self.train_notes.messages(),
            *(f"validation data: {message}" for message in self.valid_notes.messages()),
        ]

    def build_model(self) -> nn.Module:
        return self.settings.build_model(self.recipe, self.codec)

    def initial_weights(self, model: nn.Module, tensors: Mapping[str, Tensor], origin: object) -> dict[str, Tensor]:
        """The weights to start from: the body of another run, its pooler where both have one; the head is new.

        A body on top of another (ELMo's) names the submodule that takes the weights (`inherits`). A language model is
        a body itself; the tokens that it gets beside its vocabulary are new.
        """
        if self.codec.special_tokens.causal and not any(name.startswith("body.") for name in tensors):
            tensors = {f"body.{name}": tensor for name, tensor in tensors.items()}
        inside = "body." + (model.body.inherits if isinstance(model.body, Elmo) else "")
        tensors = {n.replace("body.", inside, 1) if n.startswith("body.") else n: t for n, t in tensors.items()}
        kept = model.state_dict()  # which names shared tables twice
        own = {n: t.detach() for n, t in (*model.named_parameters(), *model.named_buffers()) if n in kept}
        taken = {
            n: self._with_new_entries(t, own[n])
            for n, t in tensors.items()
            if n.startswith(("body.", "pooler.")) and n in own
        }
        missing = [name for name in own if name.startswith(inside) and name not in taken]
        unexpected = [name for name in tensors if name.startswith(inside) and name not in own]
        if inside != "body." and not any(name.startswith(inside) for name in own):
            return own  # it has no such submodule: the other run gives the vocabulary alone
        if missing or unexpected:
            wrong = f"{missing[0]} is missing there" if missing else f"{unexpected[0]} is not in this model"
            raise RegardError(
                f"{origin}: training.init has another body than the recipe's model ({wrong}); "
                "write its model section into the recipe"
            )
        return own | taken

    def _with_new_entries(self, tensor: Tensor, own: Tensor) -> Tensor:
        """A table of a vocabulary, and after it the fresh entries of the tokens that this model adds."""
        size, entries = self.codec.tokenizer.size, self.codec.special_tokens.entries
        if entries > size and own.dim() == tensor.dim() == 2 and (len(tensor), len(own)) == (size, entries):
            return torch.cat([tensor, own[size:].to(tensor)])
        return tensor

    def view(self, seed: int, epoch: int) -> FeatureView[W]:
        """Each feature as often as its corpus weighs; a fraction is a probability."""
        whole, window = np.divmod(self.weights, 1)
        times = whole + (np.random.default_rng([seed, epoch]).random(len(window)) < window)
        order = np.repeat(np.arange(len(self.features)), times.astype(np.int64))
        if not len(order):
            raise RegardError("the weights of the corpora leave no example for an epoch; raise a weight")
        return FeatureView(self.features, order, self.settings.batch, self.codec.collate, self.settings.count_targets)

    def static_batch(self, model: nn.Module, batch: TextBatch) -> TextBatch | None:
        return batch.fixed() if cast(BodyWithHead, model).capturable else None

    def describe(self, batch: TextBatch) -> str:
        shown = [cast(Any, self.train[n]).where for n in batch.rows[:3]]
        return f"{len(batch.rows)} examples, first {'; '.join(shown)}"

    def validate(self, model: nn.Module, device: torch.device, progress: Progress | None = None) -> dict[str, float]:
        if not self.valid:
            return {}
        predictions, loss = self.codec.predict(model, self.valid, progress)
        metrics = self.settings.compute_metrics(self.valid, predictions, self.codec)
        values = {name: entry["value"] for name, entry in metrics.items()}
        return values if loss is None else values | {"loss": loss}

    def evaluate_corpora(self, model: nn.Module, corpora: Sequence[Corpus], progress: Progress | None = None) -> Json:
        return self.settings.predictor_class(model, self.codec, self.recipe).evaluate(corpora, progress)

    def save(self, folder: Path) -> None:
        self.codec.save(folder)
