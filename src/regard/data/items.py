"""Records with named values, of any layout that labels come in: sets of the catalog, .tsv, .csv, .jsonl. Knows no task.

A record comes with its place, FILE, line N, so that whatever is wrong with it can be said there.
"""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import nearest
from regard.data.config import Corpus
from regard.data.paths import find
from regard.data.readers import lines, parse_json, suffix
from regard.errors import RegardError, whole_characters

BY_QUESTION = ("squad", "dream")  # layouts of the catalog that number their questions, not their lines


def misplaced(error: Exception) -> str:
    """What an error says of how a JSON file is laid out, in no programmer's words."""
    return f"there is no {error.args[0]}" if isinstance(error, KeyError) else "lists and objects stand elsewhere"


class Item(NamedTuple):
    where: str
    values: dict[Any, Any]

    def get(self, key: Any) -> Any:
        if key not in self.values:
            known = [str(k) for k in self.values if k != "number"]
            raise RegardError(f"{self.where}: there is no column {key}; {nearest(str(key), known)}")
        return self.values[key]

    def text(self, key: Any) -> str:
        """The value as text; numbers are as they are written."""
        return plain(self.get(key), self.where, key)

    def texts(self, key: Any) -> list[str]:
        value = self.get(key)
        if not isinstance(value, list):
            raise RegardError(f"{self.where}: {key} must be a list, not {type(value).__name__}")
        return [plain(part, self.where, key) for part in value]


def plain(value: Any, where: str, key: Any) -> str:
    if not isinstance(value, str | int | float):
        raise RegardError(f"{where}: {key} must be text, not {type(value).__name__}")
    return whole_characters(str(value).replace("\0", " "), f"{where}: {key}")


def items(corpus: Corpus) -> Iterator[Item]:
    """The records of a corpus by name, or by number (from 1) where the recipe counts the columns of a .tsv."""
    if corpus.source is not None:
        raise RegardError(f"{corpus.name} is two parallel files; labelled data is one: write path: FILE")
    if corpus.set is not None:
        return _of_set(corpus.set)
    assert corpus.path is not None
    path = find(corpus.path)
    kind = suffix(path)
    if kind in (".jsonl", ".ndjson"):
        return _jsonl(path)
    if kind == ".csv":
        return _csv(path)
    if kind == ".tsv":
        counted = corpus.columns is not None and all(isinstance(c, int) for c in corpus.columns)
        return _tsv(path, named=not counted)
    raise RegardError(f"{path}: labelled data is read from .tsv, .csv and .jsonl files; rename it to what it is")


def _of_set(reference: str) -> Iterator[Item]:
    from regard.data import catalog

    entry, split = catalog.resolve(reference)
    path = catalog.files(reference)[0]
    what = "question" if entry.layout in BY_QUESTION else "line"
    for values in catalog.records(entry.name, split):
        yield Item(f"{path}, {what} {values['number']}", values)


def _jsonl(path: Path) -> Iterator[Item]:
    for number, line in enumerate(lines(path), 1):
        where = f"{path}, line {number}"
        values = parse_json(line, where) if line.strip() else {}
        if not isinstance(values, dict):
            raise RegardError(f"{where}: not a JSON object")
        if values:
            yield Item(where, values)


def _csv(path: Path) -> Iterator[Item]:
    """With quotes, as spreadsheets write it; the first line has the names."""
    rows = csv.DictReader(line + "\n" for line in lines(path))
    for values in rows:
        where = f"{path}, line {rows.line_num}"
        if None in values or None in values.values():
            raise RegardError(f"{where}: not as many columns as the first line has")
        yield Item(where, values)


def _tsv(path: Path, named: bool) -> Iterator[Item]:
    """Without quoting: in GLUE's files a quotation mark is text."""
    rows = enumerate(lines(path), 1)
    names: list[Any] = next(rows)[1].split("\t") if named else []
    for number, line in rows:
        if line.strip():
            cells = [cell.strip() for cell in line.split("\t")]
            keys = names or list(range(1, len(cells) + 1))
            if len(cells) < len(keys):
                raise RegardError(f"{path}, line {number}: {len(cells)} columns instead of {len(keys)}")
            yield Item(f"{path}, line {number}", dict(zip(keys, cells, strict=False)))
