"""Prepared corpora: token ids in memory-mapped files, read, filtered and encoded once, then reused by fingerprint.

Memory stays bounded by a chunk of lines and eight bytes a row for duplicates. Knows no model and no task.
"""

import contextlib
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from regard.console import Console
from regard.data import annotations, embedded
from regard.data.config import Corpus, Filters
from regard.data.ragged import RaggedFile, RaggedTexts, RaggedWriter, id_dtype
from regard.data.readers import TextRecord, corpus_files, read_corpus, suffix
from regard.errors import RegardError
from regard.io.files import DamagedFile, os_errors_for, read_json
from regard.io.lock import lock_file
from regard.io.manifest import file_records, find_damage, write_manifest
from regard.reporting import Json

FORMAT = 2
CHUNK = 20_000  # lines
CHUNK_CHARACTERS = 8_000_000  # a chunk of very long lines ends early
ANNOTATIONS = {"heads": ("heads", "parents"), "links": ("alignments", "links")}  # folder: key of the corpus, field
FULL_HASH_LIMIT = 1 << 30  # bytes; of larger files size, time and samples are hashed
BLOCK = 1 << 20
DROP_REASONS = ("empty", "identical", "duplicate", "short", "long", "ratio")  # in the order they are judged


CorpusReader = Callable[[Corpus, Sequence[str], Sequence[str] | None, Counter[str]], Iterator[TextRecord]]


class TextEncoder(Protocol):
    @property
    def size(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]: ...


class PreparedCorpus:
    """Rows of ids by column, where each came from, and what was dropped on the way."""

    def __init__(self, folder: Path, weights: Sequence[float] | None = None) -> None:
        self.folder = Path(folder)
        self.report: Json = read_json(self.folder / "report.json")
        self.fingerprint: str = self.report["fingerprint"]
        self.columns = {name: RaggedFile(self.folder / "ids" / name) for name in self.report["columns"]}
        self.text = {name: RaggedTexts(self.folder / "text" / name) for name in self.report["text"]}
        self.annotations = {
            name: RaggedFile(self.folder / name) for name in ANNOTATIONS if (self.folder / name).is_dir()
        }
        origin = RaggedFile(self.folder / "origin")
        self.corpus, self.number = origin.flat.reshape(-1, 2).T  # [rows] each: which corpus; which line of it, from 1
        self.weights = list(weights) if weights is not None else [1.0] * len(self.report["corpora"])
        rows = [*self.columns.values(), *self.text.values(), origin, *self.annotations.values()]
        if any(len(column) != len(self) for column in rows):
            raise RegardError(f"{folder}: the columns differ in rows; delete the folder and prepare again")

    def __len__(self) -> int:
        return int(self.report["kept"])

    def report_lines(self) -> list[str]:
        return [_sentence(entry) for entry in self.report["corpora"]]


def _sentence(entry: Json) -> str:
    """`train.en + train.de: 9 of 12 rows kept; dropped 2 empty, 1 duplicate; 1 truncated`."""
    dropped = ", ".join(f"{n:,} {why}" for why, n in entry["dropped"].items() if n)
    parts = [f"{entry['name']}: {entry['kept']:,} of {entry['read']:,} rows kept"]
    parts += [f"dropped {dropped}"] if dropped else []
    parts += [f"{entry['truncated']:,} truncated"] if entry["truncated"] else []
    parts += [f"{entry['unknown']:,} unknown pieces"] if entry["unknown"] else []
    parts += [f"{entry['nul']:,} lines with NUL characters, which became spaces"] if entry["nul"] else []
    parts += [f"{n:,} {what}" for what, n in entry.get("besides", {}).items()]
    return "; ".join(parts)


def prepare_corpora(
    corpora: Sequence[Corpus],
    columns: Mapping[str, TextEncoder],
    filters: Filters,
    cache: Path,
    keep_text: bool = False,
    progress: Callable[[int], None] | None = None,
    languages: Sequence[str] | None = None,
    reader: CorpusReader = read_corpus,
) -> PreparedCorpus:
    """The prepared form of `corpora`, from `cache` if it is there; `columns` names each column and its tokenizer.

    `progress` receives the number of rows read so far. `languages`, parallel to `columns`, are those that datasets of
    the catalog are read in. `reader` makes rows of a corpus; what it does must show in the encoders' fingerprints.
    Processes that need the same form wait for the first to write it.
    """
    settings = {"format": FORMAT, "filters": asdict(filters), "text": keep_text, "languages": languages}
    key = data_fingerprint(corpora, columns, settings, languages)
    weights = [corpus.weight for corpus in corpora]
    folder = Path(cache) / key
    if (ready := _reopen(folder, weights)) is not None:
        return ready
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _lock(folder.parent, key) as locked:
            if (ready := _reopen(folder, weights)) is not None:  # written while this one waited
                return ready
            if locked:
                shutil.rmtree(folder, ignore_errors=True)
                _remove_stale(folder.parent, key)
            temporary = folder.parent / f".making-{key}-{os.getpid()}-{os.urandom(4).hex()}"
            try:
                _build(temporary, key, corpora, columns, filters, keep_text, progress, languages, reader)
                try:
                    os.rename(temporary, folder)
                except OSError:
                    if not folder.exists():  # without locks, another may have been first
                        raise
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise RegardError(
            f"{cache}: the prepared data cannot be written ({error.strerror or error}); "
            "make room, or set data.cache to another folder"
        ) from None
    return PreparedCorpus(folder, weights)


def _reopen(folder: Path, weights: Sequence[float]) -> PreparedCorpus | None:
    """The form that an earlier run wrote; None if there is none, or it is damaged and must be written again."""
    if not folder.exists():
        return None
    try:
        if damage := find_damage(folder):
            raise DamagedFile(damage[0])
        return PreparedCorpus(folder, weights)
    except (OSError, RegardError, ValueError, KeyError) as error:
        Console(stderr=True).print(
            f"{folder}: damaged ({error}); prepared anew", highlight=False, markup=False, soft_wrap=True
        )
        return None


@contextlib.contextmanager
def _lock(cache: Path, key: str, wait: bool = True) -> Iterator[bool]:
    """Whether this process alone holds `key`."""
    with open(cache / f".lock-{key}", "a") as file:
        yield bool(lock_file(file, wait))  # without locks, two processes may do the same work, which harms neither


def _remove_stale(cache: Path, held: str) -> None:
    """Remove what killed processes left: temporary folders whose lock nobody holds."""
    for stale in cache.glob(".making-*"):
        key = stale.name.split("-")[1]
        with contextlib.nullcontext(True) if key == held else _lock(cache, key, wait=False) as free:
            if free:
                shutil.rmtree(stale, ignore_errors=True)


# --- fingerprints -----------------------------------------------------------------------------


def data_fingerprint(
    corpora: Sequence[Corpus],
    columns: Mapping[str, TextEncoder],
    settings: Mapping[str, object],
    languages: Sequence[str] | None = None,
) -> str:
    """One hash of all that prepared data depends on: files, columns, filters and tokenizers."""
    parts = {
        "corpora": [
            {
                "set": c.set,  # the embedded corpus has its splits in one file
                "columns": c.columns,
                "layout": suffix(c.path) if c.path else None,
                "files": file_hashes(c, languages),
            }
            for c in corpora
        ],
        "columns": {name: tokenizer.fingerprint for name, tokenizer in columns.items()},
        "settings": settings,
    }
    text = json.dumps(parts, sort_keys=True, default=list)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def file_hashes(corpus: Corpus, languages: Sequence[str] | None = None) -> list[str]:
    """The hashes of a corpus's files; the embedded file, which holds more than texts, has a constant for its texts."""
    paths = corpus_files(corpus, languages)
    return [h for path in paths for h in (embedded.HASHES if path == embedded.FILE else [file_hash(path)])]


def file_hash(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with os_errors_for(path), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= FULL_HASH_LIMIT:
            while block := file.read(BLOCK):
                digest.update(block)
        else:
            digest.update(f"{size} {os.fstat(file.fileno()).st_mtime_ns}".encode())
            for sample in range(32):
                file.seek(sample * (size - BLOCK) // 31)
                digest.update(file.read(BLOCK))
    return digest.hexdigest()


# --- writing ----------------------------------------------------------------------------------


def _build(
    folder: Path,
    key: str,
    corpora: Sequence[Corpus],
    columns: Mapping[str, TextEncoder],
    filters: Filters,
    keep_text: bool,
    progress: Callable[[int], None] | None,
    languages: Sequence[str] | None,
    reader: CorpusReader,
) -> None:
    names = list(columns)
    entries, total = [], 0
    seen = HashSet()
    with contextlib.ExitStack() as stack:
        writers = {n: RaggedWriter(folder / "ids" / n, id_dtype(t.size)) for n, t in columns.items()}
        texts = {n: RaggedWriter(folder / "text" / n, np.uint8) for n in names if keep_text}
        origin = RaggedWriter(folder / "origin", np.int64)
        annotated = {
            name: RaggedWriter(folder / name, np.int32)
            for name, (key, _) in ANNOTATIONS.items()
            if all(getattr(corpus, key) for corpus in corpora)
        }
        for writer in (*writers.values(), *texts.values(), origin, *annotated.values()):
            stack.enter_context(writer)
        for index, corpus in enumerate(corpora):
            counts: Counter[str] = Counter()
            records = annotations.with_trees(reader(corpus, names, languages, counts), corpus.heads, corpus.name)
            records = annotations.with_alignments(records, corpus.alignments, corpus.name)
            for chunk in _chunks(records):
                total += len(chunk)
                counts["read"] += len(chunk)
                chunk = _filter_text(chunk, filters, seen, counts)
                ids = [tokenizer.encode_batch([r.fields[i] for r in chunk])
                       for i, tokenizer in enumerate(columns.values())]  # fmt: skip
                kept = _filter_lengths(ids, filters, counts)
                for rows, tokenizer in zip(ids, columns.values(), strict=True):
                    unknown = getattr(tokenizer, "unk", None)
                    counts["unknown"] += sum(rows[i].count(unknown) for i in kept) if unknown is not None else 0
                counts["kept"] += len(kept)
                for rows, writer in zip(ids, writers.values(), strict=True):
                    writer.append([rows[i][: filters.max_length] for i in kept])
                for field, writer in enumerate(texts.values()):
                    writer.append_texts([chunk[i].fields[field] for i in kept])
                for name, writer in annotated.items():
                    writer.append([getattr(chunk[i], ANNOTATIONS[name][1]) or [] for i in kept])
                _check_annotations(annotated, chunk, ids, kept, list(columns.values()), corpus.name)
                origin.append([(index, chunk[i].number) for i in kept])
                if progress is not None:
                    progress(total)
            entries.append(_entry(corpus, counts))
    report = {"fingerprint": key, "columns": names, "text": names if keep_text else [],
              "read": total, "kept": sum(e["kept"] for e in entries), "corpora": entries}  # fmt: skip
    if not report["kept"]:
        raise RegardError(f"no rows are left to learn from. {'. '.join(map(_sentence, entries))}")
    _write_report(folder, report)


def _write_report(folder: Path, report: Json) -> None:
    """The report, and the manifest of all files that are there."""
    with open(folder / "report.json", "w", encoding="utf-8") as file:
        json.dump(report, file, ensure_ascii=False, indent=1)
        file.flush()
        os.fsync(file.fileno())
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size <= FULL_HASH_LIMIT]
    write_manifest(folder, file_records(folder, [path.relative_to(folder).as_posix() for path in paths]))


def _chunks(records: Iterator[TextRecord]) -> Iterator[list[TextRecord]]:
    chunk, size = [], 0
    for record in records:
        chunk.append(record)
        size += sum(map(len, record.fields))
        if len(chunk) == CHUNK or size > CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _check_annotations(
    annotated: Collection[str],
    chunk: list[TextRecord],
    ids: list[list[list[int]]],
    kept: list[int],
    tokenizers: Sequence[Any],
    name: str,
) -> None:
    """Annotations must be of the words that the tokenizers find in the text."""
    for i in kept if annotated else []:
        words = [tokenizer.words(rows[i]) for tokenizer, rows in zip(tokenizers, ids, strict=True)]
        where = f"{name}, line {chunk[i].number}"
        if "heads" in annotated:
            annotations.check_word_count(words[0], chunk[i].parents or [], where)
        if "links" in annotated:
            source, target = (max(side, default=-1) + 1 for side in words)
            annotations.check_alignment(chunk[i].links or [], source, target, where)


def _entry(corpus: Corpus, counts: Counter[str]) -> Json:
    dropped = {why: counts[why] for why in DROP_REASONS}
    numbers = {key: counts[key] for key in ("read", "kept", "truncated", "nul", "unknown")}
    besides = {what: n for what, n in counts.items() if what not in numbers | dropped}  # what the reader counted
    return {"name": corpus.name, **numbers, "dropped": dropped, "besides": besides}


def _filter_text(chunk: list[TextRecord], filters: Filters, seen: "HashSet", counts: Counter[str]) -> list[TextRecord]:
    """Filters before encoding: empty, identical and repeated rows are dropped."""
    kept = [record for record in chunk if all(field.strip() for field in record.fields)]
    counts["empty"] += len(chunk) - len(kept)
    if filters.identical and kept and len(kept[0].fields) > 1:
        different = [r for r in kept if len({field.strip() for field in r.fields}) > 1]
        counts["identical"] += len(kept) - len(different)
        kept = different
    if filters.duplicates and kept:
        new = seen.add(np.array([_hash(record.fields) for record in kept], dtype=np.uint64))
        counts["duplicate"] += int((~new).sum())
        kept = [record for record, first in zip(kept, new, strict=True) if first]
    return kept


def _filter_lengths(ids: list[list[list[int]]], filters: Filters, counts: Counter[str]) -> list[int]:
    """The rows of the chunk that stay, by their lengths in pieces."""
    lengths = np.array([[len(row) for row in rows] for rows in ids], dtype=np.int64)  # [columns, rows]
    longest, shortest = lengths.max(axis=0), lengths.min(axis=0)
    long = longest > filters.max_length
    if filters.long == "truncate":
        longest, shortest = np.minimum(longest, filters.max_length), np.minimum(shortest, filters.max_length)
    alive = np.ones(lengths.shape[1], dtype=bool)
    for why, bad in (
        ("empty", shortest == 0),  # text that the tokenizer finds nothing in
        ("short", shortest < filters.min_length),
        ("long", long & (filters.long == "drop")),
        ("ratio", (longest > filters.max_ratio * shortest) & (filters.max_ratio > 0)),
    ):
        counts[why] += int((alive & bad).sum())
        alive &= ~bad
    counts["truncated"] += int((alive & long).sum())
    return np.flatnonzero(alive).tolist()


def _hash(fields: tuple[str, ...]) -> int:
    digest = hashlib.blake2b("\0".join(fields).encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class HashSet:
    """A set of 64-bit hashes as sorted arrays: 8 bytes each, 16 while two arrays merge.

    Two of n different rows share a hash with probability n² / 2⁶⁵: about 1e-7 for two million.
    """

    def __init__(self) -> None:
        self.runs: list[np.ndarray] = []  # each at least twice as long as the next

    def add(self, hashes: np.ndarray) -> np.ndarray:
        """True where a hash comes for the first time."""
        new = np.zeros(len(hashes), dtype=bool)
        new[np.unique(hashes, return_index=True)[1]] = True
        for run in self.runs:
            at = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            new &= run[at] != hashes
        if new.any():
            self.runs.append(np.sort(hashes[new]))
        while len(self.runs) > 1 and len(self.runs[-2]) < 2 * len(self.runs[-1]):
            merged = np.concatenate([self.runs.pop(), self.runs.pop()])
            merged.sort(kind="stable")
            self.runs.append(merged)
        return new


# --- weights ----------------------------------------------------------------------------------


def epoch_rows(prepared: PreparedCorpus, seed: int, epoch: int) -> np.ndarray:
    """The rows of an epoch: each of a corpus of weight w ⌊w⌋ times, and a random part w - ⌊w⌋ once more."""
    if all(weight == 1 for weight in prepared.weights):
        return np.arange(len(prepared))
    parts = []
    for index, weight in enumerate(prepared.weights):
        rows = np.flatnonzero(prepared.corpus == index)
        times, rest = int(weight), weight - int(weight)
        random = np.random.default_rng([seed, epoch, index])
        parts += [rows] * times + [random.choice(rows, round(rest * len(rows)), replace=False)]
    chosen = np.sort(np.concatenate(parts))
    if not len(chosen):
        raise RegardError("the weights of the corpora leave no row for an epoch; raise a weight")
    return chosen
