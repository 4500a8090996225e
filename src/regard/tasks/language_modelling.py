"""Language modelling: running text in, a model that says what comes next."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import at_least, option
from regard.data.config import Corpus
from regard.data.documents import Extent, Form
from regard.data.prepared import Prepared
from regard.errors import RegardError
from regard.evaluation.metrics import Metric, perplexity
from regard.examples.blocks import BlocksView, Streams, along
from regard.examples.document_encoder import Running
from regard.examples.preparing import TOKENIZER, lines_of, prepared_documents, read_documents, tokenizer_for
from regard.examples.recipe_like import RecipeLike
from regard.examples.vocabulary import single
from regard.examples.windows import Reach
from regard.models.texts import Texts
from regard.predict.generation import Writer
from regard.predict.options import texts_of
from regard.reporting import Progress
from regard.tasks.contract import BaseTask, Carry
from regard.tasks.recipe_checks import fits, refuse_sampling
from regard.text import Tokenizer


@dataclass(frozen=True)
class LanguageModellingConfig:
    """Running text: every next token is said when those before it are read."""

    models: ClassVar[tuple[str, ...]] = ("lm", "lstm_lm", "bilstm_lm")
    metrics: ClassVar[dict[str, bool]] = dict.fromkeys(
        ("perplexity", "loss", "word_perplexity", "bits_per_character"), False
    )
    defaults: ClassVar[dict[str, Any]] = {
        # a document may be long, or come again
        "data": {"filters": {"max_length": 1_000_000_000, "duplicates": False}},
        "text": {"kind": "byte_bpe"},
        "model": {"kind": "lm"},
        "training": {"goal": "perplexity", "label_smoothing": 0.0},
        "decoding": {"kind": "sample"},
    }
    asks: ClassVar[tuple[str, ...]] = ("text", "context", "stride")

    kind: Literal["lm"] = "lm"
    language: str = option("en", "of the text, as a code; it picks the Moses rules")
    documents: Form = option("blank", "what a document is: each line, what stands between blank lines, or a whole file")
    boundaries: Literal["kept", "marked"] = option(
        "kept",
        "between documents: none sees another, or only a mark stands between them, as always where an LSTM learns",
    )
    length: int = option(256, "tokens of a block, the context it learns with")
    context: int | None = option(None, "tokens of a window when it is measured; none: as length")
    stride: int | None = option(
        None,
        "tokens from window to window when a finished model is measured; less is slower and sees more; none: context",
    )

    def __post_init__(self) -> None:
        at_least(self, 1, "length", "context", "stride")
        self.reach()

    @property
    def title(self) -> str:
        return f"{self.kind} {self.language}"

    def reach(self, context: int | None = None, stride: int | None = None) -> Reach:
        """How a finished model is measured, or as asked for."""
        seen = context or self.context or self.length
        return Reach(seen, stride or (seen if context or self.stride is None else self.stride))

    def check(self, recipe: RecipeLike) -> None:
        refuse_sampling(recipe)
        fits(recipe, max(self.length, self.context or 0))

    # --- from files to a task or a trained model ---------------------------------------------------------------

    def open(self, recipe: RecipeLike, home: Path) -> Writer:
        running = Running(Tokenizer.load(home / TOKENIZER), self.documents)
        return Writer(cast(Any, recipe.model).build(running.size), running, recipe)

    def prepare(self, recipe: RecipeLike, home: Path | None, progress: Progress) -> "LanguageModellingTask":
        end = "" if self.documents == "line" else "\n"  # ends of lines are text, unless they end documents

        def learn() -> Tokenizer:
            lines = lambda: (line + end for line in lines_of(recipe, progress))  # noqa: E731
            return single(recipe, lines, self.language, f"lm {self.documents}")

        running = Running(tokenizer_for(recipe, home, learn), self.documents)
        return LanguageModellingTask(recipe, running, prepared_documents(recipe, running, self.documents, progress))

    def evaluate(
        self, made: Writer, split: str | None, given: Mapping[str, Any], progress: Progress | None = None
    ) -> dict[str, Any]:
        corpora = texts_of(made.recipe, split, given.get("text"))
        try:
            reach = self.reach(given.get("context"), given.get("stride"))
        except ValueError as error:
            raise RegardError(f"--{error}") from None
        room = getattr(made.model, "longest", None)
        if room is not None and reach.context > room:
            raise RegardError(f"--context is {reach.context}, but the model can tell only {room} places apart")
        return measure(made, corpora, reach, progress)


class LanguageModellingTask(BaseTask):
    def __init__(self, recipe: RecipeLike, running: Running, prepared: Prepared) -> None:
        super().__init__(recipe)
        self.running, self.prepared, self.fingerprint = running, prepared, prepared.fingerprint
        self.settings = cast(LanguageModellingConfig, recipe.task)
        texts = read_documents(recipe.data.valid, self.settings.documents, recipe.training.validation.lines)
        self.valid = Measured.of(texts, self.writer(nn.Identity()))
        self.streams = Streams(prepared, self.settings.length)
        self.carries = getattr(recipe.model, "carries", False)

    def report(self) -> list[str]:
        tokens = len(self.streams.flat)
        names = [self.recipe.data.train[n].name for n in self.streams.short]
        return [
            *self.prepared.report_lines(),
            *(
                f"{name}: shorter than a block of task.length={self.settings.length}, and not learned from"
                for name in names
            ),
            f"{tokens:,} tokens, a vocabulary of {self.running.size:,}",
        ]

    def build_model(self) -> nn.Module:
        return cast(Any, self.recipe.model).build(self.running.size)  # type: ignore[no-any-return]

    def view(self, seed: int, epoch: int) -> BlocksView:
        if self.carries:
            return along(self.streams, self.recipe.training.tokens_per_batch, seed, epoch)
        mark = self.running.tokenizer.bos if self.settings.boundaries == "kept" else None
        return BlocksView(self.streams, self.streams.starts(seed, epoch), mark)

    def loss(self, model: nn.Module, batch: Texts, carry: Carry) -> tuple[Tensor, Carry]:
        if not self.carries:
            return super().loss(model, batch, carry)
        begin, states = torch.tensor(batch.rows, device=batch.device), dict[str, Tensor]()
        if carry and len(carry["next"]) == len(begin):  # a short text has more rows in one epoch than in another
            other = (carry["next"] != begin)[:, None, None, None]  # as in a new epoch: such a row begins anew
            states = {name: value.masked_fill(other, 0.0) for name, value in carry.items() if name != "next"}
        loss, states = model(batch, None, self.smoothing, states)
        return loss, states | {"next": begin + self.settings.length}

    def fixed(self, model: nn.Module, batch: Texts) -> Texts | None:
        return batch.fixed() if batch.document is None and self.recipe.model.kind == "lm" else None

    def describe(self, batch: Texts) -> str:
        row = int(np.searchsorted(self.streams.offsets, batch.rows[0], side="right")) - 1
        name = self.recipe.data.train[int(self.prepared.corpus[row])].name
        return f"{len(batch.rows)} blocks, first from the document at line {self.prepared.number[row]} of {name}"

    def writer(self, model: nn.Module) -> Writer:
        return Writer(model, self.running, self.recipe)

    def validate(self, model: nn.Module, device: torch.device, progress: Progress | None = None) -> dict[str, float]:
        """In windows side by side, which is quick; a finished model is measured with the task's stride."""
        if not self.valid.rows:
            return {}
        context = self.settings.reach().context
        return self.valid.metrics(self.writer(model), Reach(context, context), progress)[0]

    def measure(self, model: nn.Module, split: str, progress: Progress | None = None) -> dict[str, Any]:
        corpora = getattr(self.recipe.data, split)
        return measure(self.writer(model), corpora, self.settings.reach(), progress) if corpora else {}

    def save(self, folder: Path) -> None:
        self.running.tokenizer.save(folder / TOKENIZER)


# --- measuring -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """Text that models are measured on: its tokens, and how much it is whatever they are."""

    rows: list[np.ndarray]
    extent: Extent

    @staticmethod
    def of(texts: Sequence[str], writer: Writer) -> "Measured":
        return Measured(writer.rows(texts) if texts else [], Extent.of(texts))

    def metrics(self, writer: Writer, reach: Reach, progress: Progress | None = None) -> tuple[dict[str, float], int]:
        """Loss and perplexity of a token, of a word and of a character; and how many tokens there were."""
        nll, tokens = writer.total(self.rows, reach, progress)
        return {
            "loss": nll / max(tokens, 1),
            "perplexity": perplexity(nll, tokens),
            "word_perplexity": perplexity(nll, self.extent.words),
            "bits_per_character": nll / max(self.extent.characters, 1) / math.log(2),
        }, tokens


def measure(
    writer: Writer, corpora: Sequence[Corpus], reach: Reach, progress: Progress | None = None
) -> dict[str, Any]:
    """The report of a finished model, which says how far it could see."""
    task = cast(LanguageModellingConfig, writer.recipe.task)
    texts = read_documents(corpora, task.documents)
    measured = Measured.of(texts, writer)
    found, tokens = measured.metrics(writer, reach, progress)
    extent = measured.extent
    how = f"context:{reach.context}|stride:{reach.stride}|boundaries:{task.boundaries}"
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
        "context": reach.context,
        "stride": reach.stride,
        "metrics": {name: Metric(name, value, signatures.get(name, "")).json() for name, value in found.items()},
        "notes": [],
    }
