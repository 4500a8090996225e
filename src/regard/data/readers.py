"""Corpora as streams of records, of any size, one line in memory at a time. Knows no tokenizer and no filter.

A line ends at \\n and nowhere else (U+2028 and U+0085 are text); \\r before it is dropped, a BOM too.
"""

import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from regard.config import nearest
from regard.data.catalog import find_file, find_text_files, set_files
from regard.data.config import Corpus
from regard.errors import RegardError, check_utf8
from regard.reporting import Json

MAX_LINE = "REGARD_MAX_LINE"  # the environment variable that changes what commands take as a line
LONGEST_LINE = 1 << 26  # bytes: what looks like one endless line is not text, and must not fill the memory


class TextRecord(NamedTuple):
    number: int  # line in the file, from 1
    fields: tuple[str, ...]
    parents: list[int] | None = None  # of the words of the first field, from a CoNLL-U file
    links: list[int] | None = None  # source and target words in turn, from a file of alignments


def read_corpus(
    corpus: Corpus,
    names: Sequence[str] = ("source", "target"),
    languages: Sequence[str] | None = None,
    counts: Counter[str] | None = None,
) -> Iterator[TextRecord]:
    """The corpus as records with one field for each of `names`.

    `languages` are those of the fields, which a set of the catalog needs. `counts["nul"]` counts the lines
    whose NUL characters became spaces.
    """
    if corpus.set is not None:
        from regard.data.formats import read_set_texts

        return read_set_texts(corpus.set, [str(c) for c in corpus.columns or names], languages, counts)
    if corpus.source is not None and corpus.target is not None:
        if len(names) != 2:
            wanted = f"{len(names)} columns" if len(names) > 1 else "one text: write each file as `path: FILE`"
            raise RegardError(f"{corpus.name} is two parallel files, but this task reads {wanted}")
        return read_parallel(find_file(corpus.source), find_file(corpus.target), counts)
    assert corpus.path is not None
    path = find_file(corpus.path)
    columns = corpus.columns
    if columns is not None and len(columns) != len(names):
        raise RegardError(f"{path}: {len(columns)} columns are given, but this task reads {', '.join(names)}")
    if suffix(path) in (".jsonl", ".ndjson"):
        return read_jsonl(path, [str(c) for c in columns or names], counts)
    if columns is None and len(names) == 1 and suffix(path) != ".tsv":
        return (TextRecord(n, (line,)) for n, line in enumerate(read_lines(path, counts), 1))
    return read_tsv(path, columns or list(range(1, len(names) + 1)), counts)


def corpus_files(corpus: Corpus, languages: Sequence[str] | None = None) -> list[Path]:
    """The files that a corpus is read from, which its fingerprint covers."""
    files = [find_file(name) for name in (corpus.source, corpus.target) if name is not None]
    files += find_text_files(corpus.path) if corpus.path is not None else []
    files += [find_file(name) for name in (corpus.heads, corpus.alignments) if name is not None]
    if corpus.set is not None:
        return set_files(corpus.set, languages) + files
    return files


def split_folder(corpus: Corpus) -> list[Corpus]:
    """A corpus for each file, where the path is a folder of texts; else the corpus itself."""
    if corpus.path is None:
        return [corpus]
    return [replace(corpus, path=str(path)) for path in find_text_files(corpus.path)]


def suffix(path: str | Path) -> str:
    """The suffix that tells layouts apart: .tsv, .jsonl or another, without .gz."""
    return Path(Path(path).name.removesuffix(".gz")).suffix


# --- lines ------------------------------------------------------------------------------------


@contextmanager
def open_file(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed where its first bytes say gzip; errors become sentences."""
    try:
        with open(path, "rb") as raw:
            if raw.peek(2)[:2] == b"\x1f\x8b":
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield io.BufferedReader(unpacked, 1 << 16)  # type: ignore[arg-type]
            else:
                yield raw
    except FileNotFoundError:
        raise RegardError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise RegardError(f"{path} is a folder; give a file in it") from None
    except EOFError:
        raise RegardError(f"{path}: the gzip data ends too early: the file was cut short; get it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise RegardError(f"{path}: the gzip data is damaged ({error}); get it again") from None
    except OSError as error:
        raise RegardError(f"{path}: cannot be read ({error.strerror or error})") from None


def read_lines(
    path: Path,
    counts: Counter[str] | None = None,
    repair: Callable[[bytes, int], bytes] | None = None,
    longest: int = LONGEST_LINE,
) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends. An empty file is an error, an empty line is not.

    `repair` may make UTF-8 of a line that is not; it is called with the line and its number. `longest` is in bytes.
    """
    number = 0
    with open_file(path) as file:
        while raw := file.readline(longest + 1):
            number += 1
            if number == 1:
                raw = raw.removeprefix(b"\xef\xbb\xbf")
                if not raw:  # nothing but the mark
                    number = 0
                    break
            check_line_length(raw, longest, f"{path}, line {number}")
            yield _decode(repair(raw, number) if repair else raw, path, number, counts)
    if number == 0:
        raise RegardError(f"{path}: the file is empty")


def check_line_length(raw: bytes, longest: int, where: str) -> None:
    if len(raw.rstrip(b"\r\n")) >= longest:
        raise RegardError(
            f"{where}: a line of {longest:,} bytes or more; cut it into shorter ones"
            + (f", or set {MAX_LINE} to more bytes" if longest < LONGEST_LINE else "")
        )


def _decode(raw: bytes, path: Path, number: int, counts: Counter[str] | None) -> str:
    try:
        text = raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        if number == 1 and raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise RegardError(f"{path}, line 1: this is UTF-16; use iconv -f utf-16 -t utf-8") from None
        byte = raw[error.start]
        raise RegardError(
            f"{path}, line {number}: not valid UTF-8 (byte 0x{byte:02x} at column {error.start + 1}); "
            "convert the file: iconv -f ITS-ENCODING -t utf-8"
        ) from None
    return _without_nul(text, counts)


def _without_nul(text: str, counts: Counter[str] | None) -> str:
    if "\0" not in text:
        return text
    if counts is not None:
        counts["nul"] += 1
    return text.replace("\0", " ")


# --- the three layouts ------------------------------------------------------------------------


def read_parallel(source: Path, target: Path, counts: Counter[str] | None = None) -> Iterator[TextRecord]:
    try:
        for number, pair in enumerate(zip(read_lines(source, counts), read_lines(target, counts), strict=True), 1):
            yield TextRecord(number, pair)
    except ValueError:
        raise _line_count_error(source, target) from None


def _line_count_error(source: Path, target: Path) -> RegardError:
    """The error for files of unequal length: both counts, and where they seem to part."""
    a, b = _line_lengths(source), _line_lengths(target)
    line = misaligned_line(a, b)
    where = (
        f"they seem to part near line {line}"
        if line
        else f"they look alike up to line {min(len(a), len(b))}, where the shorter ends"
    )
    return RegardError(f"{source} has {len(a)} lines and {target} has {len(b)}: {where}")


def _line_lengths(path: Path) -> np.ndarray:
    return np.fromiter((len(line.strip()) for line in read_lines(path)), dtype=np.int32)


def misaligned_line(a: np.ndarray, b: np.ndarray) -> int | None:
    """The line (from 1) where two files stop being parallel, judged by the lengths of their lines.

    While they are parallel, log(a / b) has a small spread; after a lost line, that of unrelated text. The
    best split into a calm and a wild part by likelihood is taken if it clearly beats no split; a line that is
    empty on one side only, close to it, is surer still.
    """
    n = min(len(a), len(b))
    a, b = a[:n], b[:n]
    lone = np.flatnonzero((a == 0) != (b == 0))
    first = int(lone[0]) + 1 if len(lone) else None
    if n < 2:
        return first
    ratio = np.log((a + 1.0) / (b + 1.0))
    square = np.minimum((ratio - np.median(ratio)) ** 2, 9.0)
    total = np.cumsum(square)
    k = np.arange(1, n)  # the calm part is [0, k)
    calm, wild = total[:-1] / k, (total[-1] - total[:-1]) / (n - k)
    floor = 1e-3  # lines of equal length must not make a part infinitely likely
    gain = n * np.log(total[-1] / n + floor) - k * np.log(calm + floor) - (n - k) * np.log(wild + floor)
    gain = np.where(wild > calm, gain, 0.0)
    if gain.max() < 2 * np.log(n) + 8:
        return first
    split = int(gain.argmax()) + 1
    near = lone[np.abs(lone - split) <= 20]
    return int(near[0] if len(near) else split) + 1


def read_tsv(path: Path, columns: Sequence[int | str], counts: Counter[str] | None = None) -> Iterator[TextRecord]:
    """Tab-separated columns without quoting, by number from 1 or by the names in the first line."""
    rows = enumerate(read_lines(path, counts), 1)
    if any(isinstance(c, str) for c in columns):
        header = next(rows)[1].split("\t")
        for name in columns:
            if isinstance(name, str) and name not in header:
                raise RegardError(f"{path}, line 1: the header has no column {name}; {nearest(name, header)}")
        columns = [c if isinstance(c, int) else header.index(c) + 1 for c in columns]
    index = [int(c) - 1 for c in columns]
    most = max(index) + 1
    for number, line in rows:
        cells = line.split("\t")
        if len(cells) < most and line.strip():
            raise RegardError(f"{path}, line {number}: {len(cells)} columns, but column {most} is asked for")
        yield TextRecord(number, tuple(cells[i] if i < len(cells) else "" for i in index))


def read_jsonl(path: Path, keys: Sequence[str], counts: Counter[str] | None = None) -> Iterator[TextRecord]:
    """One JSON object a line; `translation.en` reaches into a nested one. A blank line is an empty record."""
    for number, line in enumerate(read_lines(path, counts), 1):
        where = f"{path}, line {number}"
        if not line.strip():
            yield TextRecord(number, ("",) * len(keys))
            continue
        item = json_object(line, where)
        yield TextRecord(number, tuple(_lookup(item, key, where, counts) for key in keys))


def parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise RegardError(f"{where}: JSON that is nested too deeply") from None
    except ValueError as error:  # a number of too many digits, too
        raise RegardError(f"{where}: not valid JSON ({error})") from None


def json_object(text: str, where: str) -> Json:
    item = parse_json(text, where)
    if not isinstance(item, dict):
        raise RegardError(f"{where}: not a JSON object")
    return item


def _lookup(item: Json, key: str, where: str, counts: Counter[str] | None) -> str:
    value: object = item
    for part in [key] if key in item else key.split("."):
        if not isinstance(value, dict) or part not in value:
            raise RegardError(f"{where}: there is no key {key}; {nearest(key, item)}")
        value = value[part]
    if not isinstance(value, str):
        raise RegardError(f"{where}: {key} must be text, not {type(value).__name__}")
    return _without_nul(check_utf8(value, f"{where}: {key}"), counts)
