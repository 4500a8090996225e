"""What all predictors share: a trained model with its recipe, its device, its precision and its decoding engine.

And what those of fine-tuned models share: examples in, predictions out, in order; and their metrics.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch
from torch import nn

from regard.accel.inference_weights import inference_weights
from regard.accel.int8 import INT8
from regard.data.config import Corpus
from regard.decoding import Acceptance, DecodingConfig, Engine, Generator
from regard.errors import RegardError
from regard.examples.codec import ExampleCodec, Notes
from regard.examples.features import Feature, pad_features
from regard.examples.long_text import Long, with_long
from regard.examples.recipe_like import RecipeLike
from regard.models.heads import BodyWithHead
from regard.nn.dispatch import autocast_dtype
from regard.nn.record import AttentionRecorder
from regard.predict.ensemble import same_vocabulary
from regard.predict.long_text import attention_received
from regard.reporting import Json, Progress, Warn

if TYPE_CHECKING:
    from regard.text import Tokenizer

PRECISIONS: dict[str, torch.dtype | None] = {"float32": None, "bf16": torch.bfloat16, INT8: None}  # None: as they are


class Predictor:
    """A trained model and its recipe. `regard.load(folder)` returns a subclass, which adds what users do with it."""

    precision = "float32"  # of decoding
    run: Path | None = None  # the folder that it was loaded from
    load_run: Callable[[str, str, str], Self] | None = None  # (run, device, precision); `regard.load` gives it
    fuse = True  # whether the engine may decode by fused steps
    packs_weights = False  # whether the engine decodes with weights in that precision, packed for inference

    def __init__(self, model: nn.Module, recipe: RecipeLike) -> None:
        self.model, self.recipe = model, recipe
        self._engine: tuple[object, Engine] | None = None
        self.drafts: dict[str, Self] = {}  # of speculative searches, by name

    def _repr_html_(self) -> str:
        """What a notebook shows: which model this is, and where it runs."""
        recipe, count = self.recipe, sum(p.numel() for p in self.model.parameters())
        rows = {
            "task": recipe.task.kind,
            "model": f"{recipe.model.kind}, {count:,} parameters",
            "device": f"{self.device}, {self.precision}",
            "folder": self.run or "",
        }
        cells = "".join(f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
        return f"<table><caption>{type(self).__name__}</caption>{cells}</table>"

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def longest(self) -> int | None:
        """The most positions that the model knows, where there is a limit."""
        body = dict(self.model.named_children()).get("body", self.model)
        longest: int | None = getattr(body, "longest", None)
        return longest

    @property
    def engine(self) -> Engine:
        """The decoding engine; built again when weights have changed, as they do between two validations."""
        if self.precision not in PRECISIONS:
            raise RegardError(f"precision is {self.precision!r}; write {' or '.join(PRECISIONS)}")
        weights = ((p.data_ptr(), p._version) for p in self.model.parameters())
        key = self.precision, autocast_dtype(self.device), *weights
        if self._engine is None or self._engine[0] != key:
            self._engine = None  # free the old weights before more are allocated
            model = self.model
            if self.packs_weights and self.precision != INT8:  # which `regard.load` has put into the model
                model = inference_weights(model, PRECISIONS[self.precision])
            self._engine = key, Engine(cast(Generator, model), fuse=self.fuse, load_draft=self._load_draft)
        return self._engine[1]

    @property
    def tokenizers(self) -> "dict[str, Tokenizer]":
        """What the meaning of its ids depends on, by side where there are two."""
        return {}

    @torch.inference_mode(False)  # its weights are kept
    def _load_draft(self, run: str) -> Generator:
        """The model of another run, whose ids mean the same."""
        if run not in self.drafts:
            if self.load_run is None:
                raise RegardError(
                    f"the draft {run} cannot be loaded while a model is trained; write ngrams or layers(2)"
                )
            other = self.load_run(run, str(self.device), self.precision)
            if type(other.model) is not type(self.model) or other.tokenizers.keys() != self.tokenizers.keys():
                theirs, ours = other.recipe, self.recipe
                raise RegardError(
                    f"{run}: a model {theirs.model.kind} of the task {theirs.task.kind} cannot be the draft of a model "
                    f"{ours.model.kind} of the task {ours.task.kind}"
                )
            for side, tokenizer in self.tokenizers.items():
                if not same_vocabulary(tokenizer, other.tokenizers[side]):
                    raise RegardError(
                        f"{run} has another vocabulary than {self.run or 'the model'}, so its guesses mean other "
                        "words; a draft learns with the same one: from the same data by the same settings"
                    )
            self.drafts[run] = other
        other = self.drafts[run]
        other.precision, other.fuse = self.precision, self.fuse
        return other.engine.model

    def acceptance(self, decoding: DecodingConfig) -> Acceptance | None:
        """How far guesses went, of all that was decoded so by now; None where nothing was guessed."""
        return self.engine.acceptance(decoding)

    def use_shortlist(self, folder: Path) -> None:
        """For models that translate (`Translator`)."""
        kind = self.recipe.task.kind
        raise RegardError(f"{folder}: a shortlist is for models that translate, and this is one of the task {kind}")

    def unfused(self) -> Self:
        """A copy with the same model, which decodes by the model's own modules: hooks on them are called."""
        own = copy.copy(self)
        own.fuse = own.packs_weights = False
        own._engine = None
        return own

    @contextmanager
    def eval_mode(self) -> Iterator[None]:
        """No dropout inside; afterwards the model is as it was."""
        was_training = self.model.training
        self.model.eval()
        try:
            yield
        finally:
            self.model.train(was_training)


class FinetunedPredictor(Predictor):
    """A trained model of a fine-tuning task. Subclasses add what users do with it."""

    def __init__(self, model: nn.Module, codec: ExampleCodec[Any, Any, Any], recipe: RecipeLike) -> None:
        super().__init__(model, recipe)
        self.codec, self.tokenizer, self.labels = codec, codec.tokenizer, codec.labels

    def predict(self, examples: Sequence[Any], warn: Warn | None = None, long: Long | None = None) -> list[Any]:
        """The prediction for every example; `warn` gets sentences about what was cut."""
        notes, codec = Notes(), copy.copy(self.codec)
        if long is not None:
            codec.settings = with_long(codec.settings, long)
        codec.importance = self._importance
        predictions = codec.predict(self.model, examples, notes=notes)[0]
        if warn:
            for message in notes.messages():
                warn(message)
        return predictions

    def _importance(self, passages: Sequence[list[int]]) -> np.ndarray:
        """Of passages, by the attention that their tokens receive."""

        def read(ids: list[int], record: AttentionRecorder) -> int:
            feature: Feature[None] = Feature((self.codec.special_tokens.row(ids),), 0)
            batch = pad_features([feature], self.tokenizer.pad, self.codec.settings.length)
            cast(BodyWithHead, self.model).hidden(batch.to(self.device), record)
            return 1  # [CLS], or <s>

        with self.eval_mode():
            return attention_received(read, passages, self.codec.settings.length - 2)

    def evaluate(self, corpora: Sequence[Corpus], progress: Progress | None = None) -> Json:
        """The report of `regard evaluate`."""
        notes, settings = Notes(), self.codec.settings
        examples = settings.read_examples(corpora)
        predictions, loss = self.codec.predict(self.model, examples, progress, notes)
        measured = {} if loss is None else {"loss": {"value": loss}}
        return {
            "data": [corpus.name for corpus in corpora],
            "examples": len(examples),
            "metrics": settings.compute_metrics(examples, predictions, self.codec) | measured,
            "notes": notes.messages(),
        }
