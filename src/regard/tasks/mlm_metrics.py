"""How pretraining is measured: documents that are held out, how well their masked words are guessed, and the report."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.nn.functional as F

from regard.data.config import Corpus
from regard.data.ragged import Rows
from regard.errors import RegardError
from regard.evaluation.metrics import Metric
from regard.examples.masked_lm import ExamplesView
from regard.examples.masking import Masks
from regard.examples.preparing import read_documents
from regard.examples.recipe_like import RecipeLike
from regard.examples.segments import Book
from regard.examples.sentences import Sentences
from regard.models.bert import MaskedLanguage
from regard.models.texts import Texts
from regard.reporting import Progress

if TYPE_CHECKING:
    from regard.tasks.pretraining import PretrainingConfig


class HeldOut:
    """Documents that are measured on, with pairs and masks that the seed alone decides."""

    ROWS = 32

    def __init__(self, recipe: RecipeLike, reader: Sentences, corpora: Sequence[Corpus], lines: int = 0) -> None:
        self.recipe, self.reader, self.corpora = recipe, reader, corpora
        self.settings = cast("PretrainingConfig", recipe.task)
        self.book = self._book(lines)  # mistakes are told now, not at the first validation

    @property
    def mask(self) -> int:
        return cast(int, self.reader.tokenizer.mask)

    def _book(self, lines: int) -> Book:
        texts = read_documents(self.corpora, self.settings.documents, lines)
        rows = [np.array(row) for row in self.reader.encode_batch(texts) if row]
        names = ", ".join(corpus.name for corpus in self.corpora)
        if not rows:
            raise RegardError(f"{names}: no text to measure on")
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        book = Book(Rows(np.concatenate(rows), offsets), self.reader.tokenizer.eos, self.settings.room // 2)
        try:
            self.settings.examples.check(book)
        except RegardError as error:
            raise RegardError(f"{names}: {error}") from None
        return book

    @cached_property
    def batches(self) -> list[Texts]:
        seed, settings = self.recipe.seed, self.settings
        made = settings.examples.make(self.book, np.arange(len(self.book)), settings.room, Random(f"{seed}"))
        masks = Masks(settings.masking, self.reader.tokenizer)
        view = ExamplesView(self.book, made, masks, self.reader.tokenizer, settings, (seed, 0))
        order = np.arange(len(made))
        return [view.collate(order[n : n + self.ROWS]) for n in range(0, len(order), self.ROWS)]


@dataclass
class Guesses:
    loss: float = 0.0  # of masked words, summed
    right: int = 0
    places: int = 0
    gaps_right: int = 0  # of the places that read [MASK]: elsewhere a word may be known by copying it
    gaps: int = 0
    labels: list[np.ndarray] = field(default_factory=list)
    next_loss: float = 0.0  # of rows, summed
    next_right: int = 0
    rows: int = 0
    judged: int = 0  # rows of which it was asked whether the second segment follows

    def metrics(self) -> dict[str, float]:
        """Means; accuracies in percent. The unigram's: always saying the most frequent of the masked words."""
        most = np.bincount(np.concatenate(self.labels)).max() if self.places else 0
        places, judged = max(self.places, 1), max(self.judged, 1)
        words = {
            "masked_loss": self.loss / places,
            "masked_accuracy": 100 * self.right / places,
            "gap_accuracy": 100 * self.gaps_right / max(self.gaps, 1),
            "unigram_accuracy": 100 * float(most) / places,
        }
        if not self.judged:
            return {"loss": words["masked_loss"]} | words
        follows = {"next_loss": self.next_loss / judged, "next_accuracy": 100 * self.next_right / judged}
        return {"loss": words["masked_loss"] + follows["next_loss"]} | words | follows


@torch.inference_mode()
def guesses(model: MaskedLanguage, batches: Sequence[Texts], mask: int, progress: Progress | None = None) -> Guesses:
    """`mask` is what a gap reads."""
    found, device = Guesses(), next(model.parameters()).device
    was_training = model.training
    model.eval()
    for n, batch in enumerate(batches, 1):
        moved = batch.to(device)
        assert moved.labels is not None
        assert batch.labels is not None
        words, follows = model.scores(moved)
        found.loss += float(F.cross_entropy(words.float(), moved.labels, reduction="sum"))
        right, gap = words.argmax(-1) == moved.labels, moved.ids.flatten()[moved.places] == mask
        found.right += int(right.sum())
        found.gaps_right += int((right & gap).sum())
        found.gaps += int(gap.sum())
        found.places += len(batch.labels)
        found.labels.append(batch.labels.numpy())
        found.rows += len(batch.ids)
        if follows is not None and moved.classes is not None:
            found.next_loss += float(F.cross_entropy(follows.float(), moved.classes, reduction="sum"))
            found.next_right += int((follows.argmax(-1) == moved.classes).sum())
            found.judged += len(batch.ids)
        if progress:
            progress("Measuring", n, len(batches))
    model.train(was_training)
    return found


def measure(model: MaskedLanguage, held_out: HeldOut, progress: Progress | None = None) -> dict[str, Any]:
    """The report of a model on documents it has not learned from."""
    found = guesses(model, held_out.batches, held_out.mask, progress)
    shown = f"{held_out.settings.signature}|seed:{held_out.recipe.seed}"
    signatures = {
        "masked_accuracy": f"{shown}|places:{found.places}",
        "gap_accuracy": f"{shown}|places that read [MASK]:{found.gaps}",
        "unigram_accuracy": f"{shown}|places:{found.places}|always the most frequent of these",
        "next_accuracy": f"{shown}|pairs:{found.judged}",
    }
    values = found.metrics().items()
    return {
        "data": [corpus.name for corpus in held_out.corpora],
        "documents": len(held_out.book),
        "examples": found.rows,
        "metrics": {name: Metric(name, value, signatures.get(name, "")).json() for name, value in values},
        "notes": [],
    }
