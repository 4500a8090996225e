"""What tasks share that read text: a vocabulary learned from its lines, and training data in their prepared form."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from regard.data.config import Corpus
from regard.data.documents import COLUMN, Form, documents, documents_of
from regard.data.paths import cache_root
from regard.data.prepared import Prepared, prepare
from regard.data.readers import apart, files, read
from regard.errors import RegardError
from regard.examples.recipe_like import RecipeLike
from regard.reporting import Progress
from regard.text import Tokenizer

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


def tokenizer_for(recipe: RecipeLike, home: Path | None, learn: Callable[[], Tokenizer]) -> Tokenizer:
    """That of a run in `home`, or one that is learned once all files are known to be there."""
    for corpus in [*recipe.data.train, *recipe.data.valid, *recipe.data.test]:
        files(corpus)  # all must be there before hours are spent on some
    return learn() if home is None else Tokenizer.load(home / TOKENIZER)


def lines_of(recipe: RecipeLike, progress: Progress) -> Iterator[str]:
    """The training text that a vocabulary is learned from."""
    for corpus in chain.from_iterable(map(apart, recipe.data.train)):
        for count, record in enumerate(read(corpus, COLUMN), 1):
            if count % 10_000 == 0:
                progress("Reading lines for the vocabulary", count, 0)
            yield record.fields[0]


def read_documents(corpora: Sequence[Corpus], form: Form, lines: int = 0) -> list[str]:
    """The documents of a validation or test set, of its first so many lines."""
    found: list[str] = []
    for part in chain.from_iterable(map(apart, corpora)):
        records = documents(islice(read(part, COLUMN), lines or None), form)
        found += [record.fields[0] for record in records if record.fields[0].strip()]
    if corpora and not found:
        raise RegardError(f"{', '.join(c.name for c in corpora)}: no text to measure on")
    return found


def prepared_from(
    recipe: RecipeLike, encoders: Mapping[str, Any], what: str, progress: Progress, **options: Any
) -> Prepared:
    """The training data with each column encoded, of which people are told `what` they are."""
    cache = Path(recipe.data.cache) if recipe.data.cache else cache_root() / "prepared"
    told = lambda n: progress(f"Preparing {what}", n, 0)  # noqa: E731
    return prepare(recipe.data.train, encoders, recipe.data.filters, cache, progress=told, **options)


def prepared_documents(recipe: RecipeLike, encoder: Encoder, form: Form, progress: Progress) -> Prepared:
    """The training documents, encoded."""
    reader = lambda corpus, names, languages, counts: documents_of(corpus, form, languages, counts)  # noqa: E731
    return prepared_from(recipe, {"text": encoder}, "documents", progress, reader=reader)
