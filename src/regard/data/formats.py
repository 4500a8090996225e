"""How each layout of the catalog becomes records: dictionaries with plain values. Knows no folders."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.data.embedded import pairs as embedded_pairs
from regard.data.readers import lines, opened, parse_json
from regard.data.sets import Set
from regard.errors import RegardError

Item = dict[str, Any]
Counts = Counter[str] | None


def parallel_lines(entry: Set, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Item]:
    """One file a language, parallel by line."""
    sides = [lines(path, counts) for path in paths]
    try:
        for number, texts in enumerate(zip(*sides, strict=True), 1):
            yield dict(zip(entry.languages, texts, strict=True), number=number)
    except ValueError:
        names = ", ".join(path.name for path in paths)
        raise RegardError(f"{entry.name}:{split}: {names} differ in lines; get the set again") from None


def columns(entry: Set, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Item]:
    """One file, a column a language."""
    for number, line in enumerate(lines(paths[0], counts), 1):
        cells = line.split("\t")
        if len(cells) < len(entry.languages):
            raise RegardError(f"{paths[0]}, line {number}: {len(cells)} columns instead of {len(entry.languages)}")
        yield dict(zip(entry.languages, cells, strict=False), number=number)


def text(entry: Set, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Item]:
    """Plain lines. Where several splits are one file, valid is the last tenth of its characters."""
    shared = split != "all" and "all" in entry.splits
    end = sum(len(line) + 1 for line in lines(paths[0])) * 0.9 if shared else 0.0
    place = 0
    for number, line in enumerate(lines(paths[0], counts), 1):
        if not shared or (place >= end) == (split == "valid"):
            yield {"text": line, "number": number}
        place += len(line) + 1


def dialogue(entry: Set, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Item]:
    for number, line in enumerate(lines(paths[0], counts), 1):
        turns = [turn.strip() for turn in line.split("__eou__")]
        yield {"turns": [turn for turn in turns if turn], "number": number}


def table(entry: Set, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Item]:
    """GLUE's TSV files: tabs separate and quotes are text, since many sentences hold a single quote mark."""
    rows = enumerate(lines(paths[0], counts), 1)
    width = len(next(rows)[1].split("\t")) if entry.header else max(entry.columns.values()) + 1
    for number, line in rows:
        cells = line.split("\t")
        if len(cells) < width:
            raise RegardError(f"{paths[0]}, line {number}: {len(cells)} columns instead of {width}")
        item: Item = {key: cells[at].strip() for key, at in entry.columns.items()}
        if "score" in item:
            item["score"] = float(item["score"])
        yield {**item, "number": number}


def conll(entry: Set, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Item]:
    """Columns of word, part of speech, chunk and tag; a blank line ends a sentence, -DOCSTART- a document."""
    rows: list[list[str]] = []
    document, first = 0, 1

    def sentence() -> Item:
        words, pos, chunks, tags = map(list, zip(*rows, strict=True))
        return {"tokens": words, "pos": pos, "chunks": chunks, "tags": tags, "document": document, "number": first}

    for number, line in enumerate(lines(paths[0], counts), 1):
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


def squad(entry: Set, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Item]:
    number = 0
    for article in whole_json(paths[0])["data"]:
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


def dream(entry: Set, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Item]:
    number = 0
    for turns, questions, identity in whole_json(paths[0]):
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


def scitldr(entry: Set, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Item]:
    """`source` is a list of sentences, `target` a list of summaries of which each is right."""
    for number, line in enumerate(lines(paths[0], counts), 1):
        item = parse_json(line, f"{paths[0]}, line {number}")
        keep = {key: item[key] for key in ("source", "target", "title")}
        yield {"id": item["paper_id"], **keep, "number": number}


def vocabulary(entry: Set, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Item]:
    if paths[0].name.startswith("vocab.json"):
        pairs = sorted((number, token) for token, number in whole_json(paths[0]).items())
    else:
        pairs = list(enumerate(lines(paths[0], counts)))
    for number, token in pairs:
        yield {"id": number, "token": token, "number": number + 1}


def embedded(entry: Set, split: str, paths: Sequence[Path], counts: Counts) -> Iterator[Item]:
    for number, pair in enumerate(embedded_pairs(split), 1):  # type: ignore[arg-type]
        yield {"en": pair.source, "de": pair.target, "number": number}


def whole_json(path: Path) -> Any:
    with opened(path) as file:
        data = file.read()
    try:
        return json.loads(data)
    except ValueError as error:
        raise RegardError(f"{path}: not valid JSON ({error})") from None


LAYOUTS: dict[str, Callable[[Set, str, Sequence[Path], Counts], Iterator[Item]]] = {
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
