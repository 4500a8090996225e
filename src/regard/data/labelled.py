"""Labelled data: records with named values from sets of the catalog, .tsv, .csv and .jsonl; and texts with a label.

A record comes with its location, FILE, line N, for messages. Knows no task.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from regard.config import nearest
from regard.data.catalog import find_file, resolve_set, set_files
from regard.data.config import Corpus
from regard.data.formats import read_set
from regard.data.readers import json_object, read_lines, suffix
from regard.errors import RegardError, check_utf8

Key = int | str  # of a value: the column's name, or its number from 1
NUMBERED_BY_QUESTION = ("squad", "dream")  # layouts that number questions, not lines
TEXT_KEYS = (("sentence1", "sentence2"), ("text1", "text2"), ("premise", "hypothesis"), ("sentence",), ("text",))
LABEL_KEYS = ("label", "score")


class LabelledRecord(NamedTuple):
    where: str  # its location, for messages
    values: Mapping[Any, Any]  # by `Key`

    def get(self, key: Key) -> Any:
        if key not in self.values:
            known = [str(k) for k in self.values if k != "number"]
            raise RegardError(f"{self.where}: there is no column {key}; {nearest(str(key), known)}")
        return self.values[key]

    def text(self, key: Key) -> str:
        """The value as text; numbers are as they are written."""
        return as_text(self.get(key), self.where, key)

    def texts(self, key: Key) -> list[str]:
        value = self.get(key)
        if not isinstance(value, list):
            raise RegardError(f"{self.where}: {key} must be a list, not {type(value).__name__}")
        return [as_text(part, self.where, key) for part in value]


def as_text(value: object, where: str, key: Key) -> str:
    if not isinstance(value, str | int | float):
        raise RegardError(f"{where}: {key} must be text, not {type(value).__name__}")
    return check_utf8(str(value).replace("\0", " "), f"{where}: {key}")


def layout_problem(error: Exception) -> str:
    """What is wrong with the layout of a JSON file, in plain words."""
    return f"there is no {error.args[0]}" if isinstance(error, KeyError) else "lists and objects stand elsewhere"


def labelled_records(corpus: Corpus) -> Iterator[LabelledRecord]:
    """The records of a corpus by name, or by number (from 1) where the recipe counts the columns of a .tsv."""
    if corpus.source is not None:
        raise RegardError(f"{corpus.name} is two parallel files; labelled data is one: write path: FILE")
    if corpus.set is not None:
        return _set_records(corpus.set)
    assert corpus.path is not None
    path = find_file(corpus.path)
    kind = suffix(path)
    if kind in (".jsonl", ".ndjson"):
        return _jsonl(path)
    if kind == ".csv":
        return _csv(path)
    if kind == ".tsv":
        counted = corpus.columns is not None and all(isinstance(c, int) for c in corpus.columns)
        return _tsv(path, named=not counted)
    raise RegardError(f"{path}: labelled data is read from .tsv, .csv and .jsonl files; rename it to what it is")


def _set_records(reference: str) -> Iterator[LabelledRecord]:
    entry, split = resolve_set(reference)
    path = set_files(reference)[0]
    what = "question" if entry.layout in NUMBERED_BY_QUESTION else "line"
    for values in read_set(entry.name, split):
        yield LabelledRecord(f"{path}, {what} {values['number']}", values)


def _jsonl(path: Path) -> Iterator[LabelledRecord]:
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}, line {number}"
        if line.strip() and (values := json_object(line, where)):
            yield LabelledRecord(where, values)


def _csv(path: Path) -> Iterator[LabelledRecord]:
    """With quotes, as spreadsheets write it; the first line has the names."""
    rows = csv.DictReader(line + "\n" for line in read_lines(path))
    for values in rows:
        where = f"{path}, line {rows.line_num}"
        if None in values or None in values.values():
            raise RegardError(f"{where}: not as many columns as the first line has")
        yield LabelledRecord(where, values)


def _tsv(path: Path, named: bool) -> Iterator[LabelledRecord]:
    """Without quoting: in GLUE's files a quotation mark is text."""
    rows = enumerate(read_lines(path), 1)
    names: list[Key] = [*next(rows)[1].split("\t")] if named else []
    for number, line in rows:
        if line.strip():
            cells = [cell.strip() for cell in line.split("\t")]
            keys = names or list(range(1, len(cells) + 1))
            if len(cells) < len(keys):
                raise RegardError(f"{path}, line {number}: {len(cells)} columns instead of {len(keys)}")
            yield LabelledRecord(f"{path}, line {number}", dict(zip(keys, cells, strict=False)))


# --- texts with a label ----------------------------------------------------------------------


class LabelledText(NamedTuple):
    where: str
    texts: tuple[str, ...]  # one or two
    label: str
    known: bool = True  # false: the label is to be predicted


def labelled_texts(corpus: Corpus) -> Iterator[LabelledText]:
    """`columns` name the texts and, last, the label; without them, the usual names are tried."""
    keys: list[Key] | None = list(corpus.columns) if corpus.columns else None
    for record in labelled_records(corpus):
        keys = keys or _usual_keys(record)
        if not 2 <= len(keys) <= 3:
            raise RegardError(f"{corpus.name}: columns name one or two texts and the label, not {len(keys)} columns")
        yield LabelledText(record.where, tuple(record.text(key) for key in keys[:-1]), record.text(keys[-1]).strip())


def _usual_keys(record: LabelledRecord) -> list[Key]:
    texts = next((names for names in TEXT_KEYS if all(name in record.values for name in names)), None)
    label = next((name for name in LABEL_KEYS if name in record.values), None)
    if texts is None or label is None:
        known = ", ".join(str(key) for key in record.values if key != "number")
        raise RegardError(
            f"{record.where}: which columns are the text and the label? There are {known}; "
            "write columns: [TEXT, LABEL] or [TEXT, TEXT, LABEL] beside path, by name or number"
        )
    return [*texts, label]
