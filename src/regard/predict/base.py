"""What all predictors share: a trained model with its recipe, its device, its precision and its decoding engine.

And what those of fine-tuned models share: examples in, predictions out, in order; and their metrics.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any, Self, cast

import torch
from torch import nn

from regard.accel.inference_weights import inference_weights
from regard.accel.int8 import INT8
from regard.data.config import Corpus
from regard.decoding import Engine, Generator
from regard.errors import RegardError
from regard.examples.codec import ExampleCodec, Notes
from regard.examples.recipe_like import RecipeLike
from regard.nn.dispatch import autocast_dtype
from regard.reporting import Json, Progress, Warn

PRECISIONS: dict[str, torch.dtype | None] = {"float32": None, "bf16": torch.bfloat16, INT8: None}  # None: as they are


class Predictor:
    """A trained model and its recipe. `regard.load(folder)` returns a subclass, which adds what users do with it."""

    precision = "float32"  # of decoding
    run: Path | None = None  # the folder that it was loaded from
    fuse = True  # whether the engine may decode by fused steps
    packs_weights = False  # whether the engine decodes with weights in that precision, packed for inference

    def __init__(self, model: nn.Module, recipe: RecipeLike) -> None:
        self.model, self.recipe = model, recipe
        self._engine: tuple[object, Engine] | None = None

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
            self._engine = key, Engine(cast(Generator, model), fuse=self.fuse)
        return self._engine[1]

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

    def predict(self, examples: Sequence[Any], warn: Warn | None = None) -> list[Any]:
        """The prediction for every example; `warn` gets sentences about what was cut."""
        notes = Notes()
        predictions = self.codec.predict(self.model, examples, notes=notes)[0]
        if warn:
            for message in notes.messages():
                warn(message)
        return predictions

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
