"""Language modelling: the next token of a text is learned."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import at_least, choice, option
from regard.data.config import Corpus
from regard.data.documents import DocumentForm, TextSize
from regard.data.prepared import PreparedCorpus
from regard.errors import RegardError
from regard.evaluation.metrics import Metric, perplexity
from regard.examples.blocks import BlockView, CorpusTokens, contiguous_view
from regard.examples.document_encoder import DocumentEncoder
from regard.examples.preparing import TOKENIZER, prepare_documents, read_documents, tokenizer_for, training_lines
from regard.examples.recipe_like import ModelSettings, RecipeLike
from regard.examples.vocabulary import load_or_train_tokenizer
from regard.examples.windows import StridedWindows
from regard.models.batch import TextBatch
from regard.models.lm import LanguageModel
from regard.predict.generation import TextGenerator
from regard.predict.options import EvaluateOptions, text_corpora
from regard.reporting import Json, Progress
from regard.tasks.contract import Carry, EncodedTask, TaskConfig
from regard.tasks.recipe_checks import check_lengths, check_no_sampling
from regard.text import Tokenizer


@choice("lm")
class LanguageModellingConfig(TaskConfig):
    """Text: every next token is predicted from those before it."""

    models: ClassVar[tuple[str, ...]] = ("lm", "lstm_lm", "bilstm_lm")
    metrics: ClassVar[dict[str, bool]] = dict.fromkeys(
        ("perplexity", "loss", "word_perplexity", "bits_per_character"), False
    )
    defaults: ClassVar[Json] = {
        # a document may be long, or come again
        "data": {"filters": {"max_length": 1_000_000_000, "duplicates": False}},
        "text": {"kind": "byte_bpe"},
        "model": {"kind": "lm"},
        "training": {"goal": "perplexity", "label_smoothing": 0.0},
        "decoding": {"kind": "sample"},
    }
    evaluate_options: ClassVar[tuple[str, ...]] = ("text", "context", "stride", "memory")

    language: str = option("en", "of the text, as a code; it picks the Moses rules")
    documents: DocumentForm = option(
        "blank", "what a document is: each line, what stands between blank lines, or a whole file"
    )
    boundaries: Literal["kept", "marked"] = option(
        "kept",
        "between documents: none sees another, or only a mark stands between them, as always where an LSTM learns",
    )
    length: int = option(256, "tokens of a block, the context it learns with")
    learn: Literal["all", "last"] = option(
        "all", "positions of a block that are learned from: all, or the last alone, which sees the whole block"
    )
    context: int | None = option(None, "tokens of a window when it is measured; none: as length")
    stride: int | None = option(
        None,
        "tokens from window to window when a finished model is measured; less is slower and sees more; none: context",
    )

    memory: int | None = option(
        None, "tokens before a window that a model with a memory sees when it is measured; none: the model's"
    )

    def __post_init__(self) -> None:
        at_least(self, 1, "length", "context", "stride")
        at_least(self, 0, "memory")
        self.sliding_window()

    @property
    def title(self) -> str:
        return f"{self.kind} {self.language}"

    def sliding_window(
        self,
        model: ModelSettings | None = None,
        context: int | None = None,
        stride: int | None = None,
        memory: int | None = None,
    ) -> StridedWindows:
        """The windows in which a finished model is evaluated: those of the settings, or of these sizes.

        A model with a memory reads windows that do not overlap one after the other, and remembers.
        """
        seen = context or self.context or self.length
        stride = stride or (seen if context or self.stride is None else self.stride)
        chosen = self.memory if memory is None else memory
        learned = model.segment_memory if model else 0
        if chosen and model and not learned:
            raise ValueError(f"memory is {chosen}, but this model has none (model.memory)")
        if chosen is None:
            chosen = learned if stride == seen else 0
        return StridedWindows(seen, stride, chosen)

    def check(self, recipe: RecipeLike) -> None:
        check_no_sampling(recipe)
        self.sliding_window(recipe.model)
        if recipe.model.carries and self.boundaries == "kept" and recipe.model.segment_memory:
            raise ValueError("model.memory passes from document to document: write task.boundaries: marked")
        if self.learn == "last" and (recipe.model.carries or recipe.model.kind != "lm"):
            raise ValueError("task.learn: last is for the model lm without a memory, which reads each block by itself")
        if recipe.model.carries and recipe.model.further_targets:
            raise ValueError("model.targets is for separate blocks, and with a memory they follow each other; write 1")
        check_lengths(recipe, max(self.length, self.context or 0))

    # --- from files to a task or a trained model ---------------------------------------------------------------

    def load_predictor(self, recipe: RecipeLike, home: Path) -> TextGenerator:
        encoder = DocumentEncoder(Tokenizer.load(home / TOKENIZER), self.documents)
        return TextGenerator(recipe.model.build(encoder.size), encoder, recipe)

    def prepare(self, recipe: RecipeLike, home: Path | None, progress: Progress) -> "LanguageModellingTask":
        end = "" if self.documents == "line" else "\n"  # ends of lines are text, unless they end documents

        def train() -> Tokenizer:
            lines = lambda: (line + end for line in training_lines(recipe, progress))  # noqa: E731
            return load_or_train_tokenizer(recipe, lines, self.language, f"lm {self.documents}")

        encoder = DocumentEncoder(tokenizer_for(recipe, home, train), self.documents)
        return LanguageModellingTask(recipe, encoder, prepare_documents(recipe, encoder, self.documents, progress))

    def evaluate(
        self, predictor: TextGenerator, split: str | None, options: EvaluateOptions, progress: Progress | None = None
    ) -> Json:
        corpora = text_corpora(predictor.recipe, split, options.get("text"))
        try:
            window = self.sliding_window(
                predictor.recipe.model, options.get("context"), options.get("stride"), options.get("memory")
            )
        except ValueError as error:
            raise RegardError(f"--{error}") from None
        room = predictor.longest
        if room is not None and window.context > room:
            raise RegardError(f"--context is {window.context}, but the model can tell only {room} places apart")
        return evaluate_language_model(predictor, corpora, window, progress)


class LanguageModellingTask(EncodedTask):
    def __init__(self, recipe: RecipeLike, encoder: DocumentEncoder, prepared: PreparedCorpus) -> None:
        super().__init__(recipe, prepared, encoder)
        self.encoder = encoder
        self.settings = cast(LanguageModellingConfig, recipe.task)
        texts = read_documents(recipe.data.valid, self.settings.documents, recipe.training.validation.lines)
        self.valid = HeldOutText.of(texts, self.generator(nn.Identity()))
        self.stream = CorpusTokens(prepared, self.settings.length, 1 + recipe.model.further_targets)
        self.carries = recipe.model.carries
        self.predicting: int | None = None  # the lowest layer that does, in the step that is computed

    def report(self) -> list[str]:
        tokens = len(self.stream.flat)
        names = [self.recipe.data.train[n].name for n in self.stream.too_short]
        return [
            *self.report_lines(),
            *(
                f"{name}: shorter than a block of task.length={self.settings.length}, and not learned from"
                for name in names
            ),
            f"{tokens:,} tokens, a vocabulary of {self.encoder.size:,}",
        ]

    def build_model(self) -> nn.Module:
        return self.recipe.model.build(self.encoder.size)

    def view(self, seed: int, epoch: int) -> BlockView:
        if self.carries:
            return contiguous_view(self.stream, self.recipe.training.tokens_per_batch, seed, epoch)
        bos = self.encoder.tokenizer.bos if self.settings.boundaries == "kept" else None
        return BlockView(self.stream, self.stream.block_starts(seed, epoch), bos, self.settings.learn == "last")

    def begin_step(self, step: int, steps: int) -> bool:
        """Layers stop to predict one after the other: a function of the step alone, so that resuming needs no state."""
        before, self.predicting = self.predicting, self.recipe.model.predicting_layers(step, steps)
        return self.predicting != before

    def loss(self, model: nn.Module, batch: TextBatch, carry: Carry) -> tuple[Tensor, Carry]:
        batch = replace(batch, predicting=self.predicting)
        if not self.carries:
            return super().loss(model, batch, carry)
        begin, states = torch.tensor(batch.rows, device=batch.device), dict[str, Tensor]()
        if carry and len(carry["next"]) == len(begin):  # a short text has more rows in one epoch than in another
            other = carry["next"] != begin  # as in a new epoch: such a row begins anew
            states = {name: blank_rows(value, other) for name, value in carry.items() if name != "next"}
        loss, states = model(batch, None, self.smoothing, states)
        return loss, states | {"next": begin + self.settings.length}

    def static_batch(self, model: nn.Module, batch: TextBatch) -> TextBatch | None:
        """A captured step has the layers that predict for good: `predicting` is part of what tells shapes apart.

        Proposal heads are drawn, and their labels found, by the host.
        """
        if not isinstance(model, LanguageModel) or model.proposals is not None:
            return None
        if batch.document is not None or self.carries:
            return None
        return replace(batch.fixed(), predicting=self.predicting)

    def describe(self, batch: TextBatch) -> str:
        row = int(np.searchsorted(self.stream.offsets, batch.rows[0], side="right")) - 1
        return f"{len(batch.rows)} blocks, first from the document at {self.origin(row)}"

    def generator(self, model: nn.Module) -> TextGenerator:
        return TextGenerator(model, self.encoder, self.recipe)

    def validate(self, model: nn.Module, device: torch.device, progress: Progress | None = None) -> dict[str, float]:
        """In windows without overlap, which is quick; a finished model is evaluated with the task's stride."""
        if not self.valid.rows:
            return {}
        window = self.settings.sliding_window(self.recipe.model)
        quick = self.settings.sliding_window(self.recipe.model, window.context)
        return self.valid.metrics(self.generator(model), quick, progress)[0]

    def evaluate_corpora(self, model: nn.Module, corpora: Sequence[Corpus], progress: Progress | None = None) -> Json:
        return evaluate_language_model(
            self.generator(model), corpora, self.settings.sliding_window(self.recipe.model), progress
        )


def blank_rows(state: Tensor, rows: Tensor) -> Tensor:
    """A state [B, …] that is zero in those rows [B]."""
    return state.masked_fill(rows.view(-1, *[1] * (state.dim() - 1)), 0)


# --- evaluation -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeldOutText:
    """Held-out text: its tokens, and its words and characters, which no tokenizer changes."""

    rows: list[np.ndarray]
    extent: TextSize

    @staticmethod
    def of(texts: Sequence[str], generator: TextGenerator) -> "HeldOutText":
        return HeldOutText(generator.rows(texts) if texts else [], TextSize.count(texts))

    def metrics(
        self, generator: TextGenerator, window: StridedWindows, progress: Progress | None = None
    ) -> tuple[dict[str, float], int]:
        """Loss and perplexity of a token, of a word and of a character; and how many tokens there were."""
        nll, tokens = generator.total(self.rows, window, progress)
        return {
            "loss": nll / max(tokens, 1),
            "perplexity": perplexity(nll, tokens),
            "word_perplexity": perplexity(nll, self.extent.words),
            "bits_per_character": nll / max(self.extent.characters, 1) / math.log(2),
        }, tokens


def evaluate_language_model(
    generator: TextGenerator, corpora: Sequence[Corpus], window: StridedWindows, progress: Progress | None = None
) -> Json:
    """The report of a finished model, with the windows in its signatures."""
    task = cast(LanguageModellingConfig, generator.recipe.task)
    texts = read_documents(corpora, task.documents)
    held_out = HeldOutText.of(texts, generator)
    values, tokens = held_out.metrics(generator, window, progress)
    extent = held_out.extent
    how = f"context:{window.context}|stride:{window.stride}|boundaries:{task.boundaries}"
    how += f"|memory:{window.memory}" if window.memory else ""
    signatures = {
        "perplexity": f"{how}|tokens:{tokens}",
        "word_perplexity": f"{how}|words:{extent.words}, with ends of lines",
        "bits_per_character": f"{how}|characters:{extent.characters}",
    }
    return {
        "data": [corpus.name for corpus in corpora],
        "tokens": tokens,
        "words": extent.words,
        "characters": extent.characters,
        "documents": len(texts),
        "context": window.context,
        "stride": window.stride,
        "memory": window.memory,
        "metrics": {name: Metric(name, value, signatures.get(name, "")).json() for name, value in values.items()},
        "notes": [],
    }
