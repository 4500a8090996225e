"""The tokenizers of a task: one, or those of a pair of languages, trained (or found in a cache), saved and loaded."""

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from regard import text
from regard.config import to_plain
from regard.data.prepared import file_hash, file_hashes
from regard.data.readers import read_corpus
from regard.errors import RegardError
from regard.examples.recipe_like import RecipeLike
from regard.io.files import cache_root
from regard.reporting import Progress
from regard.text import Tokenizer
from regard.text.tokenizer import VERSION
from regard.text.training import TRAINER_VERSION


def _cache_path(recipe: RecipeLike, languages: Sequence[str] | None, rules: Sequence[str]) -> Path:
    """Where tokenizers of these texts are cached; `rules` is what they depend on besides the recipe's text section."""
    contents = [[corpus.set, corpus.columns, file_hashes(corpus, languages)] for corpus in recipe.data.train]
    vocabularies = [file_hash(Path(path)) for path in recipe.text.files()]
    key = json.dumps([to_plain(recipe.text), vocabularies, rules, contents, VERSION, TRAINER_VERSION])
    cache = Path(recipe.data.cache) if recipe.data.cache else cache_root()
    return cache / "tokenizers" / hashlib.blake2b(key.encode(), digest_size=12).hexdigest()


def load_or_train_tokenizer(
    recipe: RecipeLike, lines: Callable[[], Iterator[str]], language: str, rules: str, specials: Sequence[str] = ()
) -> Tokenizer:
    """One tokenizer, trained on the lines or found in the cache.

    `rules` names how the lines are made of the training text; `specials` are tokens beside the usual four.
    """
    path = _cache_path(recipe, None, [rules, language, *specials]) / "tokenizer.json"
    if path.exists():
        with contextlib.suppress(RegardError):  # damaged: train it again
            return Tokenizer.load(path)
    tokenizer = text.train_tokenizer(recipe.text, lines(), language, specials=specials)
    tokenizer.save(path)
    return tokenizer


class Vocabulary:
    """Source and target tokenizers; `shared` means one vocabulary with each language's own normalisation."""

    def __init__(self, source: Tokenizer, target: Tokenizer, shared: bool) -> None:
        self.source, self.target, self.shared = source, target, shared

    @staticmethod
    def of(tokenizer: Tokenizer, languages: tuple[str, str]) -> "Vocabulary":
        return Vocabulary(tokenizer.in_language(languages[0]), tokenizer.in_language(languages[1]), shared=True)

    def __iter__(self) -> Iterator[Tokenizer]:
        return iter((self.source, self.target))

    @property
    def samples(self) -> bool:
        """Whether training draws a new segmentation of the text in every epoch."""
        return bool(self.source.sampling or self.target.sampling)

    def notes(self) -> list[str]:
        """What the user should know of how the vocabularies were trained."""
        return self.source.notes() if self.shared else self.source.notes() + self.target.notes()

    @staticmethod
    def train(recipe: RecipeLike, languages: tuple[str, str], progress: Progress) -> "Vocabulary":
        """Trained on a sample of the training text, or found in the cache."""
        folder = _cache_path(recipe, languages, languages)
        if folder.is_dir():
            with contextlib.suppress(RegardError):  # damaged: learn it again
                return Vocabulary.load(folder, languages)
        vocabulary = Vocabulary._train(recipe, languages, progress)
        vocabulary.save(folder)
        return vocabulary

    @staticmethod
    def _train(recipe: RecipeLike, languages: tuple[str, str], progress: Progress) -> "Vocabulary":
        def lines(side: int) -> Iterator[str]:
            count = 0
            for corpus in recipe.data.train:
                for record in read_corpus(corpus, ("source", "target"), languages):
                    count += 1
                    if count % 10_000 == 0:
                        progress("Reading lines for the vocabulary", count, 0)
                    yield record.fields[side]

        source, target = languages
        if recipe.text.shared and recipe.text.one_tokenizer:
            groups = {source: lines(0), target: lines(1)} if source != target else chain(lines(0), lines(1))
            return Vocabulary.of(text.train_tokenizer(recipe.text, groups, source), languages)
        return Vocabulary(
            text.train_tokenizer(recipe.text, lines(0), source, "source"),
            text.train_tokenizer(recipe.text, lines(1), target, "target"),
            False,
        )

    def save(self, folder: Path) -> None:
        """`tokenizer.json` when shared, else `source.json` and `target.json`."""
        if self.shared:
            self.source.save(folder / "tokenizer.json")
        else:
            self.source.save(folder / "source.json")
            self.target.save(folder / "target.json")

    @staticmethod
    def load(folder: Path, languages: tuple[str, str]) -> "Vocabulary":
        if (folder / "tokenizer.json").exists():
            return Vocabulary.of(Tokenizer.load(folder / "tokenizer.json"), languages)
        missing = [n for n in ("source.json", "target.json") if not (folder / n).exists()]
        if missing:
            raise RegardError(f"{folder}: there is no tokenizer.json, nor {' and '.join(missing)}")
        return Vocabulary(Tokenizer.load(folder / "source.json"), Tokenizer.load(folder / "target.json"), False)


def load_side_tokenizer(run: Path, languages: Sequence[str], side: str) -> Tokenizer:
    """The tokenizer of one side of a trained model; a task of one language has no `languages`, and one side."""
    if side not in ("source", "target") or (side == "target" and len(languages) < 2):
        known = "source or target" if len(languages) > 1 else "source, the only one of this model"
        raise RegardError(f"--side is {side!r}; write {known}")
    if len(languages) < 2:
        return Tokenizer.load(run / "tokenizer" / "tokenizer.json")
    vocabulary = Vocabulary.load(run / "tokenizer", (languages[0], languages[1]))
    return vocabulary.source if side == "source" else vocabulary.target
