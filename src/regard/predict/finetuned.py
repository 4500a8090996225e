"""What the predictors of fine-tuned models share: examples in, predictions out, in order; and their metrics."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from regard.data.config import Corpus
from regard.examples.codec import ExampleCodec, Notes
from regard.examples.recipe_like import RecipeLike
from regard.predict.base import Predictor
from regard.reporting import Json, Progress, Warn


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
