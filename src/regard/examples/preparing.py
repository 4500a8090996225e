"""What tasks share that read text: a vocabulary learned from its lines, and training data in their prepared form."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.data.catalog import cache_root
from regard.data.config import Corpus
from regard.data.documents import COLUMN, DocumentForm, iter_documents, split_documents
from regard.data.prepared import PreparedCorpus, prepare_corpora
from regard.data.readers import corpus_files, read_corpus, split_folder
from regard.errors import RegardError
from regard.reporting import Progress
from regard.text import Tokenizer

if TYPE_CHECKING:
    from regard.recipe import Recipe

TOKENIZER = Path("tokenizer") / "tokenizer.json"


class Encoder:
    """A tokenizer with a task's own rules around it; `rules` name them: what was prepared by others is not used."""

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


def tokenizer_for(recipe: "Recipe", home: Path | None, learn: Callable[[], Tokenizer]) -> Tokenizer:
    """That of a run in `home`, or one that is learned once all files are known to be there."""
    for corpus in [*recipe.data.train, *recipe.data.valid, *recipe.data.test]:
        corpus_files(corpus)  # all must be there before hours are spent on some
    return learn() if home is None else Tokenizer.load(home / TOKENIZER)


def lines_of(recipe: "Recipe", progress: Progress) -> Iterator[str]:
    """The training text that a vocabulary is learned from."""
    for corpus in chain.from_iterable(map(split_folder, recipe.data.train)):
        for count, record in enumerate(read_corpus(corpus, COLUMN), 1):
            if count % 10_000 == 0:
                progress("Reading lines for the vocabulary", count, 0)
            yield record.fields[0]


def read_documents(corpora: Sequence[Corpus], form: DocumentForm, lines: int = 0) -> list[str]:
    """The documents of a validation or test set, of its first so many lines."""
    found: list[str] = []
    for part in chain.from_iterable(map(split_folder, corpora)):
        records = split_documents(islice(read_corpus(part, COLUMN), lines or None), form)
        found += [record.fields[0] for record in records if record.fields[0].strip()]
    if corpora and not found:
        raise RegardError(f"{', '.join(c.name for c in corpora)}: no text to measure on")
    return found


def prepared_from(
    recipe: "Recipe", encoders: Mapping[str, Any], what: str, progress: Progress, **options: Any
) -> PreparedCorpus:
    """The training data with each column encoded, of which people are told `what` they are."""
    cache = Path(recipe.data.cache) if recipe.data.cache else cache_root() / "prepared"
    told = lambda n: progress(f"Preparing {what}", n, 0)  # noqa: E731
    return prepare_corpora(recipe.data.train, encoders, recipe.data.filters, cache, progress=told, **options)


def prepared_documents(recipe: "Recipe", encoder: Encoder, form: DocumentForm, progress: Progress) -> PreparedCorpus:
    """The training documents, encoded."""
    reader = lambda corpus, names, languages, counts: iter_documents(corpus, form, languages, counts)  # noqa: E731
    return prepared_from(recipe, {"text": encoder}, "documents", progress, reader=reader)
