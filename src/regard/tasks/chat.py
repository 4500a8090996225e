"""Chat: replies are learned from dialogues, by an encoder and a decoder or by a language model."""

from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar, Literal, cast

import numpy as np
import torch
from torch import nn

from regard.config import at_least, choice, option
from regard.data.config import Corpus
from regard.data.dialogues import EOU, DialogueReader, Spacing
from regard.data.prepared import PreparedCorpus, epoch_rows
from regard.decoding import DecodingConfig
from regard.examples.dialogues import DialogueEncoder, DialogueView
from regard.examples.pairs import PairsView, packed_batch
from regard.examples.preparing import TOKENIZER, prepare_training_data, tokenizer_for
from regard.examples.recipe_like import RecipeLike
from regard.examples.vocabulary import load_or_train_tokenizer
from regard.models.batch import PairBatch, TextBatch
from regard.predict.chat import ChatPredictor
from regard.predict.options import EvaluateOptions, text_corpora, with_beam
from regard.reporting import Json, Progress
from regard.tasks.contract import EncodedTask, TaskConfig
from regard.tasks.recipe_checks import check_lengths, check_no_sampling
from regard.text import Tokenizer


@choice("chat")
class ChatConfig(TaskConfig):
    """Dialogues: each turn is predicted from those before it."""

    has_text_output: ClassVar[bool] = True
    models: ClassVar[tuple[str, ...]] = ("transformer", "rnn", "conv", "bytenet", "lm")
    metrics: ClassVar[dict[str, bool]] = {
        "perplexity": False, "loss": False, "bleu": True, "distinct_1": True, "distinct_2": True,
    }  # fmt: skip
    defaults: ClassVar[Json] = {
        "data": {"filters": {"max_length": 1_000_000_000, "duplicates": False}},  # people say the same things
        "text": {"kind": "byte_bpe", "size": 8000},
        "training": {"goal": "perplexity", "validation": {"decode": False}},
        "decoding": {"kind": "sample", "top_p": 0.9, "repetition_penalty": 1.1, "max_ratio": 0.0, "max_extra": 64},
    }
    evaluate_options: ClassVar[tuple[str, ...]] = ("text", "beam")

    language: str = option("en", "of the dialogues, as a code; it picks BLEU's tokeniser")
    separator: str = option(EOU, "what stands between the turns of a dialogue in plain text; .tsv has tabs")
    spacing: Spacing = option(
        "kept", "closed: text with spaces before its punctuation (I ’ m fine .) is read as people write it (I'm fine.)"
    )
    history: int | None = option(None, "turns that are read before a reply; none: all that fit in length")
    length: int = option(256, "tokens that are read, and that a reply may have; a language model: of both")
    learn: Literal["replies", "all"] = option("replies", "the turns that are learned: all but the first, or all")

    def __post_init__(self) -> None:
        at_least(self, 4, "length")
        at_least(self, 1, "history")
        if not self.separator.strip(" "):
            raise ValueError("separator must be more than spaces")

    @property
    def title(self) -> str:
        return f"{self.kind} {self.language}"

    @property
    def reader(self) -> DialogueReader:
        return DialogueReader(self.separator, self.spacing)

    def check(self, recipe: RecipeLike) -> None:
        check_no_sampling(recipe)
        if recipe.training.goal not in ("loss", "perplexity") and not recipe.training.validation.decode:
            raise ValueError(f"training.goal: {recipe.training.goal} needs training.validation.decode: true")
        alone = recipe.model.kind == "lm"
        if alone and self.history is not None:
            raise ValueError("task.history: a language model reads all turns that fit in task.length; leave it out")
        check_lengths(recipe, *[self.length] * (1 if alone else 2))

    def build(self, recipe: RecipeLike, entries: int) -> nn.Module:
        return recipe.model.build(*[entries] * (1 if recipe.model.kind == "lm" else 2))

    def encoder(self, tokenizer: Tokenizer) -> DialogueEncoder:
        return DialogueEncoder(tokenizer, f"{self.separator} {self.spacing}")

    def load_predictor(self, recipe: RecipeLike, home: Path) -> ChatPredictor:
        encoder = self.encoder(Tokenizer.load(home / TOKENIZER))
        return ChatPredictor(self.build(recipe, encoder.size), encoder, recipe)

    def prepare(self, recipe: RecipeLike, home: Path | None, progress: Progress) -> "ChatTask":
        def train() -> Tokenizer:
            dialogues = chain.from_iterable(self.reader(corpus) for corpus in recipe.data.train)
            lines = lambda: (turn for record in dialogues for turn in record.fields[0].split("\n"))  # noqa: E731
            return load_or_train_tokenizer(recipe, lines, self.language, f"chat {self.separator} {self.spacing}")

        encoder = self.encoder(tokenizer_for(recipe, home, train))
        prepared = prepare_training_data(recipe, {"dialogue": encoder}, "dialogues", progress, reader=self.reader)
        return ChatTask(recipe, encoder, prepared)

    def evaluate(
        self, predictor: ChatPredictor, split: str | None, options: EvaluateOptions, progress: Progress | None = None
    ) -> Json:
        corpora = text_corpora(predictor.recipe, split, options.get("text"))
        return evaluate_chat(predictor, corpora, progress, with_beam(predictor.recipe.decoding, options.get("beam")))


class ChatTask(EncodedTask):
    def __init__(self, recipe: RecipeLike, encoder: DialogueEncoder, prepared: PreparedCorpus) -> None:
        super().__init__(recipe, prepared, encoder)
        self.encoder = encoder
        self.settings = cast(ChatConfig, recipe.task)
        self.form = self.predictor(nn.Identity()).form
        self.examples = self.form.examples(prepared.columns["dialogue"])
        self.valid = read_dialogues(self.settings, recipe.data.valid, recipe.training.validation.lines)

    def report(self) -> list[str]:
        everything = np.arange(len(self.examples.row))
        view = self.form.view(self.examples, everything)
        kind = "windows" if self.recipe.model.kind == "lm" else "replies"
        learned = f"{len(everything):,} {kind}, {view.targets(everything):,} tokens to learn"
        notices = [self.examples.notice] if self.examples.notice else []
        return [*self.report_lines(), *notices, f"{learned}, a vocabulary of {self.encoder.size:,}"]

    def build_model(self) -> nn.Module:
        return self.settings.build(self.recipe, self.encoder.size)

    def view(self, seed: int, epoch: int) -> PairsView | DialogueView:
        return self.form.view(self.examples, self.examples.of_dialogues(epoch_rows(self.prepared, seed, epoch)))

    def static_batch(self, model: nn.Module, batch: PairBatch | TextBatch) -> PairBatch | None:
        return packed_batch(model, batch) if isinstance(batch, PairBatch) else None  # dialogues differ in their targets

    def describe(self, batch: PairBatch | TextBatch) -> str:
        row = int(self.examples.row[batch.rows[0]] if self.examples.source else batch.rows[0])
        return f"{len(batch.rows)} rows, first of the dialogue at {self.origin(row)}"

    def predictor(self, model: nn.Module) -> ChatPredictor:
        return ChatPredictor(model, self.encoder, self.recipe)

    def validate(self, model: nn.Module, device: torch.device, progress: Progress | None = None) -> dict[str, float]:
        if not self.valid:
            return {}
        settings = self.recipe.training.validation
        metrics = self.predictor(model).metrics(self.valid, settings.decoding if settings.decode else None, progress)
        return {name: metric.value for name, metric in metrics.items()}

    def evaluate_corpora(self, model: nn.Module, corpora: Sequence[Corpus], progress: Progress | None = None) -> Json:
        return evaluate_chat(self.predictor(model), corpora, progress)


def read_dialogues(settings: ChatConfig, corpora: Sequence[Corpus], most: int = 0) -> list[list[str]]:
    """The turns of the dialogues of a validation or test set, of the first so many."""
    records = chain.from_iterable(settings.reader(corpus) for corpus in corpora)
    return [record.fields[0].split("\n") for record in islice(records, most or None)]


def evaluate_chat(
    predictor: ChatPredictor,
    corpora: Sequence[Corpus],
    progress: Progress | None = None,
    decoding: DecodingConfig | None = None,
) -> Json:
    """The report of a finished model, as JSON."""
    dialogues = read_dialogues(cast(ChatConfig, predictor.recipe.task), corpora)
    metrics = predictor.metrics(dialogues, decoding or predictor.recipe.decoding, progress)
    return {
        "data": [corpus.name for corpus in corpora],
        "dialogues": len(dialogues),
        "replies": sum(len(turns) - 1 for turns in dialogues),
        "metrics": {name: metric.json() for name, metric in metrics.items()},
        "notes": [],
    }
