"""Embedding: an imported encoder without a language-modelling head; it makes vectors of texts. Nothing is trained."""

from pathlib import Path
from typing import ClassVar, Literal, cast

from regard.config import choice, option
from regard.errors import RegardError
from regard.examples.document_encoder import SentenceEncoder
from regard.examples.long_text import LongConfig, Truncate
from regard.examples.preparing import TOKENIZER
from regard.examples.recipe_like import RecipeLike
from regard.models.bert import BertConfig, BertEncoder
from regard.predict.embedding import TextEmbedder
from regard.predict.options import EvaluateOptions, Pooling
from regard.reporting import Json, Progress
from regard.tasks.contract import Task, TaskConfig
from regard.text import Tokenizer


@choice("embedding")
class EmbeddingConfig(TaskConfig):
    """An imported encoder: it makes vectors of texts."""

    models: ClassVar[tuple[str, ...]] = ("bert",)
    metrics: ClassVar[dict[str, bool]] = {"loss": False}
    defaults: ClassVar[Json] = {
        "text": {"kind": "bert"},
        "model": {"kind": "bert"},
        "training": {"goal": "loss", "label_smoothing": 0.0},
        "decoding": {"kind": "greedy"},
    }
    evaluate_options: ClassVar[tuple[str, ...]] = ()

    length: int = option(512, "places of a text that are read, [CLS] and [SEP] included")
    long: LongConfig = option(Truncate, "what becomes of a text with more places than length (docs/long-text.md)")
    pooling: Pooling = option("mean", "how one vector is made of a text, unless a command says otherwise")
    normalise: bool = option(False, "vectors have the length 1, unless a command says otherwise")
    head: Literal["pooler", "none"] = option("pooler", "what stands on the encoder")

    def check(self, recipe: RecipeLike) -> None:
        """Nothing is trained, so that nothing must go together."""

    def prepare(self, recipe: RecipeLike, home: Path | None, progress: Progress) -> Task:
        raise RegardError("the task embedding learns nothing; pretrain with the task pretraining, or fine-tune")

    def build(self, recipe: RecipeLike, entries: int) -> BertEncoder:
        return cast(BertConfig, recipe.model).encoder(entries, self.head == "pooler")

    def load_predictor(self, recipe: RecipeLike, home: Path) -> TextEmbedder:
        tokenizer = Tokenizer.load(home / TOKENIZER)
        predictor = TextEmbedder(
            self.build(recipe, tokenizer.size), SentenceEncoder(tokenizer, "line", "lines", ""), recipe
        )
        predictor.normalise = self.normalise
        return predictor

    def evaluate(
        self, predictor: TextEmbedder, split: str | None, options: EvaluateOptions, progress: Progress | None = None
    ) -> Json:
        raise RegardError("a model of the task embedding has no measure of its own")
