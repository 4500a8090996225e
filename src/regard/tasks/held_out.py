"""Documents that pretraining is measured on, and the report of it."""

from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from regard.data.config import Corpus
from regard.data.documents import COLUMN, documents
from regard.data.ragged import Rows
from regard.data.readers import apart, read
from regard.errors import RegardError
from regard.models.bert import MaskedLanguage
from regard.models.texts import Texts
from regard.tasks.contract import Progress
from regard.tasks.examples import ExamplesView
from regard.tasks.guesses import guesses
from regard.tasks.masking import Masks
from regard.tasks.segments import Book
from regard.tasks.sentences import Sentences

if TYPE_CHECKING:
    from regard.recipe import Recipe
    from regard.tasks.pretraining import PretrainingConfig


class HeldOut:
    """Documents that are measured on, with pairs and masks that the seed alone decides."""

    ROWS = 32

    def __init__(self, recipe: "Recipe", reader: Sentences, corpora: Sequence[Corpus], lines: int = 0) -> None:
        self.recipe, self.reader, self.corpora = recipe, reader, corpora
        self.settings = cast("PretrainingConfig", recipe.task)
        self.book = self._book(lines)  # mistakes are told now, not at the first validation

    @property
    def mask(self) -> int:
        return cast(int, self.reader.tokenizer.mask)

    def _book(self, lines: int) -> Book:
        parts = [part for corpus in self.corpora for part in apart(corpus)]
        records = (islice(read(part, COLUMN), lines or None) for part in parts)
        texts = [r.fields[0] for kept in records for r in documents(kept, self.settings.documents)]
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


def measure(model: MaskedLanguage, held_out: HeldOut, progress: Progress | None = None) -> dict[str, Any]:
    """The report of a model on documents it has not learned from."""
    found = guesses(model, held_out.batches, held_out.mask, progress)
    signature = f"{held_out.settings.signature}|seed:{held_out.recipe.seed}"
    counted = {
        "masked_accuracy": f"places:{found.places}",
        "gap_accuracy": f"places that read [MASK]:{found.gaps}",
        "unigram_accuracy": f"places:{found.places}|always the most frequent of these",
        "next_accuracy": f"pairs:{found.judged}",
    }
    entries = {
        name: {"value": value} | ({"signature": f"{signature}|{counted[name]}"} if name in counted else {})
        for name, value in found.metrics().items()
    }
    return {
        "data": [corpus.name for corpus in held_out.corpora],
        "documents": len(held_out.book),
        "examples": found.rows,
        "metrics": entries,
        "notes": [],
    }
