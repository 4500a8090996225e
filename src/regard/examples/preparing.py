"""Preparation that tasks share: a tokenizer of the training text, and the training data in prepared form."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from regard.data import prepared
from regard.data.config import Corpus
from regard.data.documents import COLUMN, DocumentForm, iter_documents, split_documents
from regard.data.prepared import PreparedCorpus, TextEncoder
from regard.data.readers import corpus_files, read_corpus, split_folder
from regard.errors import RegardError
from regard.examples.recipe_like import RecipeLike
from regard.io.files import cache_root
from regard.reporting import Progress
from regard.text import Tokenizer

TOKENIZER = Path("tokenizer") / "tokenizer.json"


class CorpusEncoder:
    """A tokenizer with a task's own rules around it; `rules` names them, so that they are part of the fingerprint."""

    def __init__(self, tokenizer: Tokenizer, rules: str) -> None:
        self.tokenizer, self.rules = tokenizer, rules

    @property
    def size(self) -> int:
        return self.tokenizer.size

    @property
    def unk(self) -> int:
        return self.tokenizer.unk

    @property
    def fingerprint(self) -> str:
        return hashlib.blake2b(f"{self.rules} {self.tokenizer.fingerprint}".encode(), digest_size=8).hexdigest()

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        raise NotImplementedError


def tokenizer_for(recipe: RecipeLike, home: Path | None, train: Callable[[], Tokenizer]) -> Tokenizer:
    """The tokenizer of a run in `home`, or a trained one, once all corpora are known to exist."""
    for corpus in [*recipe.data.train, *recipe.data.valid, *recipe.data.test]:
        corpus_files(corpus)  # all must be there before hours are spent on some
    return train() if home is None else Tokenizer.load(home / TOKENIZER)


def training_lines(recipe: RecipeLike, progress: Progress) -> Iterator[str]:
    """The training text, for a vocabulary."""
    for corpus in chain.from_iterable(map(split_folder, recipe.data.train)):
        for count, record in enumerate(read_corpus(corpus, COLUMN), 1):
            if count % 10_000 == 0:
                progress("Reading lines for the vocabulary", count, 0)
            yield record.fields[0]


def read_documents(corpora: Sequence[Corpus], form: DocumentForm, lines: int = 0) -> list[str]:
    """The documents of a validation or test set, of its first so many lines."""
    texts: list[str] = []
    for part in chain.from_iterable(map(split_folder, corpora)):
        records = split_documents(islice(read_corpus(part, COLUMN), lines or None), form)
        texts += [record.fields[0] for record in records if record.fields[0].strip()]
    if corpora and not texts:
        raise RegardError(f"{', '.join(c.name for c in corpora)}: no text to measure on")
    return texts


def prepare_training_data(
    recipe: RecipeLike, encoders: Mapping[str, TextEncoder], rows: str, progress: Progress, **options: Any
) -> PreparedCorpus:
    """The training data with each column encoded; `rows` names what its rows are, for the progress."""
    cache = Path(recipe.data.cache) if recipe.data.cache else cache_root() / "prepared"
    on_progress = lambda n: progress(f"Preparing {rows}", n, 0)  # noqa: E731
    return prepared.prepare_corpora(
        recipe.data.train, encoders, recipe.data.filters, cache, progress=on_progress, **options
    )


def prepare_documents(
    recipe: RecipeLike, encoder: CorpusEncoder, form: DocumentForm, progress: Progress
) -> PreparedCorpus:
    """The training documents, encoded."""
    reader = lambda corpus, names, languages, counts: iter_documents(corpus, form, languages, counts)  # noqa: E731
    return prepare_training_data(recipe, {"text": encoder}, "documents", progress, reader=reader)
