"""Metrics of masked language modelling on held-out documents, and the report of a model."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
import torch.nn.functional as F

from regard.data.config import Corpus
from regard.data.ragged import RaggedArray
from regard.errors import RegardError
from regard.evaluation.metrics import Metric
from regard.examples.document_encoder import SentenceEncoder
from regard.examples.masking import Masker
from regard.examples.preparing import read_documents
from regard.examples.recipe_like import RecipeLike
from regard.examples.segments import SentenceIndex
from regard.models.batch import TextBatch
from regard.models.bert import MaskedLM
from regard.reporting import Json, Progress

if TYPE_CHECKING:
    from regard.tasks.pretraining import PretrainingConfig


class HeldOutDocuments:
    """Held-out documents as batches, whose segment pairs and masks are a function of the seed alone."""

    ROWS = 32

    def __init__(self, recipe: RecipeLike, encoder: SentenceEncoder, corpora: Sequence[Corpus], lines: int = 0) -> None:
        self.recipe, self.encoder, self.corpora = recipe, encoder, corpora
        self.settings = cast("PretrainingConfig", recipe.task)
        self.index = self._build_index(lines)  # mistakes are errors now, not at the first validation

    @property
    def mask(self) -> int:
        return cast(int, self.encoder.tokenizer.mask)

    def _build_index(self, lines: int) -> SentenceIndex:
        texts = read_documents(self.corpora, self.settings.documents, lines)
        rows = [np.array(row) for row in self.encoder.encode_batch(texts) if row]
        names = ", ".join(corpus.name for corpus in self.corpora)
        if not rows:
            raise RegardError(f"{names}: no text to measure on")
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
        index = SentenceIndex(
            RaggedArray(np.concatenate(rows), offsets), self.encoder.tokenizer.eos, self.settings.room // 2
        )
        try:
            self.settings.examples.check(index)
        except RegardError as error:
            raise RegardError(f"{names}: {error}") from None
        return index

    @cached_property
    def batches(self) -> list[TextBatch]:
        seed, settings = self.recipe.seed, self.settings
        examples = settings.examples.make(self.index, np.arange(len(self.index)), settings.room, Random(f"{seed}"))
        masker = Masker(settings.masking, self.encoder.tokenizer)
        view = settings.view(self.index, examples, masker, self.encoder.tokenizer, (seed, 0))
        order = np.arange(len(examples))
        return [view.collate(order[n : n + self.ROWS]) for n in range(0, len(order), self.ROWS)]


@dataclass
class MaskedLMCounts:
    """Sums over batches, of which metrics are made."""

    loss: float = 0.0  # of masked words
    right: int = 0
    places: int = 0
    gaps_right: int = 0  # of the places that are [MASK]: elsewhere the input may be copied
    gaps: int = 0
    labels: list[np.ndarray] = field(default_factory=list)
    next_loss: float = 0.0  # of rows
    next_right: int = 0
    rows: int = 0
    pairs: int = 0  # rows with a next-sentence label

    def metrics(self) -> dict[str, float]:
        """Means; accuracies in percent. The unigram's: always predicting the most frequent of the masked words."""
        most = np.bincount(np.concatenate(self.labels)).max() if self.places else 0
        places, pairs = max(self.places, 1), max(self.pairs, 1)
        words = {
            "masked_loss": self.loss / places,
            "masked_accuracy": 100 * self.right / places,
            "gap_accuracy": 100 * self.gaps_right / max(self.gaps, 1),
            "unigram_accuracy": 100 * float(most) / places,
        }
        if not self.pairs:
            return {"loss": words["masked_loss"]} | words
        follows = {"next_loss": self.next_loss / pairs, "next_accuracy": 100 * self.next_right / pairs}
        return {"loss": words["masked_loss"] + follows["next_loss"]} | words | follows


@torch.inference_mode()
def count_predictions(
    model: MaskedLM, batches: Sequence[TextBatch], mask: int, progress: Progress | None = None
) -> MaskedLMCounts:
    """The sums over all batches; `mask` is the id of [MASK]."""
    counts, device = MaskedLMCounts(), next(model.parameters()).device
    was_training = model.training
    model.eval()
    for n, batch in enumerate(batches, 1):
        moved = batch.to(device)
        assert moved.labels is not None
        assert batch.labels is not None
        words, follows = model.scores(moved)
        counts.loss += float(F.cross_entropy(words.float(), moved.labels, reduction="sum"))
        right, gap = words.argmax(-1) == moved.labels, moved.ids.flatten()[moved.label_positions] == mask
        counts.right += int(right.sum())
        counts.gaps_right += int((right & gap).sum())
        counts.gaps += int(gap.sum())
        counts.places += len(batch.labels)
        counts.labels.append(batch.labels.numpy())
        counts.rows += len(batch.ids)
        if follows is not None and moved.classes is not None:
            counts.next_loss += float(F.cross_entropy(follows.float(), moved.classes, reduction="sum"))
            counts.next_right += int((follows.argmax(-1) == moved.classes).sum())
            counts.pairs += len(batch.ids)
        if progress:
            progress("Measuring", n, len(batches))
    model.train(was_training)
    return counts


def evaluate_masked_lm(model: MaskedLM, held_out: HeldOutDocuments, progress: Progress | None = None) -> Json:
    """The report of a model on documents it has not learned from."""
    counts = count_predictions(model, held_out.batches, held_out.mask, progress)
    shown = f"{held_out.settings.signature}|seed:{held_out.recipe.seed}"
    signatures = {
        "masked_accuracy": f"{shown}|places:{counts.places}",
        "gap_accuracy": f"{shown}|places that read [MASK]:{counts.gaps}",
        "unigram_accuracy": f"{shown}|places:{counts.places}|always the most frequent of these",
        "next_accuracy": f"{shown}|pairs:{counts.pairs}",
    }
    values = counts.metrics().items()
    return {
        "data": [corpus.name for corpus in held_out.corpora],
        "documents": len(held_out.index),
        "examples": counts.rows,
        "metrics": {name: Metric(name, value, signatures.get(name, "")).json() for name, value in values},
        "notes": [],
    }
