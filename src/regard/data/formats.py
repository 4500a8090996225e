"""The layouts of the catalog's datasets: how the files of each become records, dictionaries with plain values."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.config import nearest
from regard.data.catalog import check_languages, resolve_set, set_files
from regard.data.datasets import Dataset
from regard.data.embedded import pairs as embedded_pairs
from regard.data.readers import TextRecord, open_file, parse_json, read_lines
from regard.errors import RegardError
from regard.reporting import Json

Record = Json
Counts = Counter[str] | None


def parallel_lines(entry: Dataset, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Record]:
    """One file a language, parallel by line."""
    sides = [read_lines(path, counts) for path in paths]
    try:
        for number, texts in enumerate(zip(*sides, strict=True), 1):
            yield dict(zip(entry.languages, texts, strict=True), number=number)
    except ValueError:
        names = ", ".join(path.name for path in paths)
        raise RegardError(f"{entry.name}:{split}: {names} differ in lines; get the set again") from None


def columns(entry: Dataset, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Record]:
    """One file, a column a language."""
    for number, line in enumerate(read_lines(paths[0], counts), 1):
        cells = line.split("\t")
        if len(cells) < len(entry.languages):
            raise RegardError(f"{paths[0]}, line {number}: {len(cells)} columns instead of {len(entry.languages)}")
        yield dict(zip(entry.languages, cells, strict=False), number=number)


def text(entry: Dataset, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Record]:
    """Plain lines. Where several splits are one file, valid is the last tenth of its characters."""
    shared = split != "all" and "all" in entry.splits
    end = sum(len(line) + 1 for line in read_lines(paths[0])) * 0.9 if shared else 0.0
    offset = 0
    for number, line in enumerate(read_lines(paths[0], counts), 1):
        if not shared or (offset >= end) == (split == "valid"):
            yield {"text": line, "number": number}
        offset += len(line) + 1


def dialogue(entry: Dataset, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Record]:
    for number, line in enumerate(read_lines(paths[0], counts), 1):
        turns = [turn.strip() for turn in line.split("__eou__")]
        yield {"turns": [turn for turn in turns if turn], "number": number}


def table(entry: Dataset, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Record]:
    """GLUE's TSV files: tabs separate and quotes are text, since many sentences hold a single quote mark."""
    rows = enumerate(read_lines(paths[0], counts), 1)
    width = len(next(rows)[1].split("\t")) if entry.header else max(entry.columns.values()) + 1
    for number, line in rows:
        cells = line.split("\t")
        if len(cells) < width:
            raise RegardError(f"{paths[0]}, line {number}: {len(cells)} columns instead of {width}")
        item: Record = {key: cells[at].strip() for key, at in entry.columns.items()}
        if "score" in item:
            item["score"] = float(item["score"])
        yield {**item, "number": number}


def conll(entry: Dataset, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Record]:
    """Columns of word, part of speech, chunk and tag; a blank line ends a sentence, -DOCSTART- a document."""
    rows: list[list[str]] = []
    document, first = 0, 1

    def sentence() -> Record:
        words, pos, chunks, tags = map(list, zip(*rows, strict=True))
        return {"tokens": words, "pos": pos, "chunks": chunks, "tags": tags, "document": document, "number": first}

    for number, line in enumerate(read_lines(paths[0], counts), 1):
        cells = line.split()
        if cells and cells[0] == "-DOCSTART-":
            document += 1
        elif cells:
            if len(cells) != 4:
                raise RegardError(f"{paths[0]}, line {number}: {len(cells)} columns instead of 4")
            first = first if rows else number
            rows.append(cells)
        elif rows:
            yield sentence()
            rows = []
    if rows:
        yield sentence()


def squad(entry: Dataset, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Record]:
    number = 0
    for article in read_json_data(paths[0])["data"]:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                number += 1
                yield {
                    "id": question["id"],
                    "title": article["title"],
                    "context": paragraph["context"],
                    "question": question["question"],
                    "answers": question["answers"],  # [{"text", "answer_start"}]
                    "number": number,
                }


def dream(entry: Dataset, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Record]:
    number = 0
    for turns, questions, identity in read_json_data(paths[0]):
        for question in questions:
            number += 1
            yield {
                "id": identity,
                "dialogue": turns,
                "question": question["question"],
                "choices": question["choice"],
                "answer": question["choice"].index(question["answer"]),
                "number": number,
            }


def scitldr(entry: Dataset, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Record]:
    """`source` is a list of sentences, `target` a list of summaries of which each is right."""
    for number, line in enumerate(read_lines(paths[0], counts), 1):
        item = parse_json(line, f"{paths[0]}, line {number}")
        keep = {key: item[key] for key in ("source", "target", "title")}
        yield {"id": item["paper_id"], **keep, "number": number}


def vocabulary(entry: Dataset, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Record]:
    if paths[0].name.startswith("vocab.json"):
        pairs = sorted((number, token) for token, number in read_json_data(paths[0]).items())
    else:
        pairs = list(enumerate(read_lines(paths[0], counts)))
    for number, token in pairs:
        yield {"id": number, "token": token, "number": number + 1}


def embedded(entry: Dataset, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Record]:
    for number, pair in enumerate(embedded_pairs(split), 1):  # type: ignore[arg-type]
        yield {"en": pair.source, "de": pair.target, "number": number}


def read_json_data(path: Path) -> Any:
    with open_file(path) as file:
        data = file.read()
    try:
        return json.loads(data)
    except ValueError as error:
        raise RegardError(f"{path}: not valid JSON ({error})") from None


LAYOUTS: dict[str, Callable[[Dataset, str, Sequence[Path], Counts], Iterator[Record]]] = {
    "lines": parallel_lines,
    "columns": columns,
    "text": text,
    "dialogue": dialogue,
    "table": table,
    "conll": conll,
    "squad": squad,
    "dream": dream,
    "scitldr": scitldr,
    "vocabulary": vocabulary,
    "embedded": embedded,
}
PARALLEL = ("lines", "columns", "embedded")


def read_set(name: str, split: str, languages: Sequence[str] | None = None, counts: Counts = None) -> Iterator[Record]:
    """The records of a split; `number` is the record's line, or its place in the file. Keys by layout:

    parallel: its languages; text: text; dialogue: turns; GLUE: sentence or sentence1, sentence2; label or
    score; conll: tokens, pos, chunks, tags, document; squad: id, title, context, question, answers; dream:
    id, dialogue, question, choices, answer; scitldr: id, title, source, target; tokenizers: id, token.
    """
    entry, split = resolve_set(f"{name}:{split}")
    paths = set_files(f"{name}:{split}", languages)
    if languages is not None and entry.layout == "lines":  # a user may have two of three languages
        entry = replace(entry, languages=tuple(languages))
    return _checked(entry, split, paths, counts)


def _checked(entry: Dataset, split: str, paths: list[Path], counts: Counts) -> Iterator[Record]:
    """The records; a file of another layout is a RegardError."""
    try:
        yield from LAYOUTS[entry.layout](entry, split, paths, counts)
    except (KeyError, TypeError, ValueError) as error:
        raise RegardError(f"{paths[0]}: not laid out as {entry.name} is ({error!r}); see {entry.homepage}") from None


def read_set_texts(
    reference: str, fields: Sequence[str], languages: Sequence[str] | None = None, counts: Counts = None
) -> Iterator[TextRecord]:
    """A split as records of text: by language where it is parallel text, else by the keys in `fields`."""
    entry, split = resolve_set(reference)
    if entry.layout in PARALLEL:
        fields = check_languages(entry, languages or fields)
    items = read_set(entry.name, split, fields, counts)
    return (TextRecord(item["number"], tuple(_field(entry, item, f) for f in fields)) for item in items)


def _field(entry: Dataset, item: Record, key: str) -> str:
    if key not in item:
        raise RegardError(f"{entry.name} has no column {key}; {nearest(key, [k for k in item if k != 'number'])}")
    value = item[key]
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
