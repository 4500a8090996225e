"""The section `data` of a recipe: corpora, filters and the folder of the prepared form. Reads no file."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from regard.config import option

SET_REFERENCE = re.compile(r"[A-Za-z0-9][\w-]+(/[\w-]+)?:[\w-]+")  # multi30k:train, glue/SST-2:dev
PAIRED_SUFFIXES = (".tsv", ".jsonl", ".tsv.gz", ".jsonl.gz")


@dataclass(frozen=True)
class Corpus:
    source: str | None = option(None, "the source side: one sentence a line, plain or gzip")
    target: str | None = option(None, "the target side, parallel to source by line")
    path: str | None = option(
        None, "one .tsv or .jsonl file (plain or gzip) instead of two; or plain text for one column"
    )
    set: str | None = option(None, "a set of the catalog and its split, such as multi30k:train")
    columns: list[int | str] | None = option(
        None, "of path: the columns to read, counted from 1, or by header name (.tsv) or key (.jsonl)"
    )
    heads: str | None = option(None, "a CoNLL-U file beside the source: sentence i for line i, empty lines aside")
    alignments: str | None = option(None, "word alignments as 0-0 1-2 … (Pharaoh), line i for pair i; see task.guide")
    weight: float = option(1.0, "how often an epoch holds each row; 0.5 takes a random half, 2 takes each twice")

    def __post_init__(self) -> None:
        if (self.source is None) != (self.target is None):
            raise ValueError("source and target belong together: give both files")
        forms = [self.source is not None, self.path is not None, self.set is not None]
        if sum(forms) != 1:
            raise ValueError("give exactly one of: source and target, path, set")
        if self.set is not None and not SET_REFERENCE.fullmatch(self.set):
            raise ValueError(f"set is {self.set!r}; write NAME:SPLIT, such as multi30k:train")
        if self.columns is not None and self.source is not None:
            raise ValueError("columns belongs to path or set, not to source and target")
        if self.columns is not None and any(isinstance(c, int) and c < 1 for c in self.columns):
            raise ValueError("columns are counted from 1")
        if not 0 <= self.weight < 1e6:
            raise ValueError("weight must be 0 or more")

    @classmethod
    def shorthand(cls, value: object) -> dict[str, object]:
        if isinstance(value, str):
            return {"set" if SET_REFERENCE.fullmatch(value) else "path": value}
        if isinstance(value, list) and len(value) == 2 and all(isinstance(v, str) for v in value):
            return {"source": value[0], "target": value[1]}
        raise ValueError("must be a file, NAME:SPLIT, [source, target] or a mapping of keys")

    def absolute(self) -> "Corpus":
        """Existing files by their absolute path, so that a run can be used from anywhere."""
        return replace(
            self,
            source=_absolute(self.source),
            target=_absolute(self.target),
            path=_absolute(self.path),
            heads=_absolute(self.heads),
            alignments=_absolute(self.alignments),
        )

    @property
    def name(self) -> str:
        return self.set or self.path or f"{self.source} + {self.target}"


@dataclass(frozen=True)
class Filters:
    max_length: int = option(256, "longest side in pieces; see long")
    min_length: int = option(1, "shortest side in pieces")
    max_ratio: float = option(0.0, "longest side over shortest side in pieces; 0 turns it off")
    duplicates: bool = option(True, "drop rows that repeat an earlier one exactly")
    identical: bool = option(False, "drop rows whose sides are the same text")
    long: Literal["drop", "truncate"] = option("drop", "what becomes of a row with a side past max_length")

    def __post_init__(self) -> None:
        if self.max_length < 1:
            raise ValueError("max_length must be at least 1")
        if not 0 <= self.min_length <= self.max_length:
            raise ValueError("min_length must lie between 0 and max_length")
        if self.max_ratio != 0 and not self.max_ratio >= 1:
            raise ValueError("max_ratio must be at least 1, or 0 to turn it off")


@dataclass(frozen=True)
class DataConfig:
    train: list[Corpus] = option([], "what is learned from: [train.en, train.de], multi30k:train, or a list of corpora")
    valid: list[Corpus] = option([], "what training is measured on")
    test: list[Corpus] = option([], "what `regard evaluate` measures on")
    filters: Filters = option(Filters, "rows of train that are dropped or cut, and counted")
    cache: str | None = option(None, "folder of the prepared form; by default in $REGARD_CACHE or ~/.cache/regard")

    def absolute(self) -> "DataConfig":
        train, valid, test = ([c.absolute() for c in corpora] for corpora in (self.train, self.valid, self.test))
        return replace(self, train=train, valid=valid, test=test)

    @classmethod
    def expand(cls, mapping: dict[str, object]) -> dict[str, object]:
        return {k: expand_corpora(v) if k in ("train", "valid", "test") else v for k, v in mapping.items()}


def _absolute(name: str | None) -> str | None:
    return str(Path(name).absolute()) if name and Path(name).exists() else name


def expand_corpora(value: object) -> list[object]:
    """The short forms of a list of corpora, written out: one corpus, or two files that belong together."""
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    if len(items) == 2 and all(isinstance(v, str) and not _is_corpus(v) for v in items):
        return [Corpus.shorthand(items)]
    return [Corpus.shorthand(v) if isinstance(v, str | list) else v for v in items]


def _is_corpus(name: str) -> bool:
    """A name that is a corpus by itself: a set, or a file with both sides in it."""
    return bool(SET_REFERENCE.fullmatch(name)) or name.endswith(PAIRED_SUFFIXES)
