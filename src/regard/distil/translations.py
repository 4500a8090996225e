"""A teacher's translations of a text, in chunks that are kept, and what of them is learned from.

A chunk is a file that appears by one rename, so a killed process goes on at the first that lacks. Sources are
translated once each, longest first, so that lines of a chunk are about as long. Knows no student.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from regard.config import at_least
from regard.data.config import Corpus
from regard.data.readers import read_corpus, suffix
from regard.errors import RegardError
from regard.examples.pairs import COLUMNS
from regard.io.atomic import atomic_write
from regard.predict.options import TranslationOptions
from regard.predict.translation import Translator
from regard.reporting import Progress, Warn
from regard.text.coverage import unknown_lines

SAMPLE = 2000  # lines that are looked at before the first is translated
REASONS = {  # why a line or a translation is left out
    "too_long": "longer than the teacher knows",
    "unknown": "mostly unknown to the teacher's vocabulary",
    "empty": "without a translation",
    "ratio": "much longer or shorter than their source",
    "unlikely": "the least likely",
}


@dataclass(frozen=True)
class TranslationChoices:
    """How the teacher translates, and what is left out of it."""

    nbest: int = 1  # translations of each source
    beam: int | None = None  # None: as the teacher's recipe says
    max_ratio: float = 3.0  # the longer side over the shorter, in pieces with </s>; 0: any
    worst: float = 0.05  # share of translations, of the lowest log-probability a piece
    chunk: int = 2000  # sources in a file

    def __post_init__(self) -> None:
        at_least(self, 1, "nbest", "beam", "chunk")
        if not 0 <= self.worst < 1:
            raise ValueError(f"worst must be at least 0 and below 1, not {self.worst}")
        if self.max_ratio != 0 and not self.max_ratio >= 1:
            raise ValueError("max_ratio must be at least 1, or 0 to turn it off")


class TranslatedRow(NamedTuple):
    """A line of a chunk: a translation, or why a source has none."""

    source: str
    target: str
    score: float = 0.0  # log-probability a piece
    source_pieces: int = 0
    target_pieces: int = 0
    reason: str = ""  # of REASONS

    def line(self) -> str:
        return "\t".join(map(str, self)) + "\n"

    @staticmethod
    def parse(line: str) -> "TranslatedRow":
        source, target, score, source_pieces, target_pieces, reason = line.rstrip("\n").split("\t")
        return TranslatedRow(source, target, float(score), int(source_pieces), int(target_pieces), reason)


def has_targets(corpus: Corpus) -> bool:
    """Whether a corpus is pairs; a file of plain text has sources alone."""
    return corpus.path is None or suffix(corpus.path) in (".tsv", ".jsonl", ".ndjson")


def read_sources(corpora: Sequence[Corpus], languages: tuple[str, str]) -> list[str]:
    """The sources that differ, longest first; lines that are as long stay in the order of the text."""
    seen: dict[str, None] = {}
    for corpus in corpora:
        names = COLUMNS if has_targets(corpus) else COLUMNS[:1]
        for record in read_corpus(corpus, names, languages):
            if line := _plain(record.fields[0]):
                seen.setdefault(line)
    if not seen:
        raise RegardError(f"{', '.join(corpus.name for corpus in corpora)}: no lines to translate")
    return sorted(seen, key=len, reverse=True)


def _plain(text: str) -> str:
    """One line, without the tabs that part columns."""
    return " ".join(text.split("\t")).replace("\r", " ").replace("\n", " ").strip()


def check_known(sources: Sequence[str], translator: Translator, warn: Warn) -> None:
    """Warn where a text is mostly unknown to the teacher's vocabulary, as one of another language is."""
    sample = sources[:: max(1, len(sources) // SAMPLE)]
    tokenizer = translator.vocabulary.source
    unknown = len(unknown_lines(sample, tokenizer.encode_batch(list(sample)), tokenizer))
    if 2 * unknown > len(sample):
        share = 100 * unknown / len(sample)
        warn(
            f"{share:.0f}% of the lines are mostly unknown to the teacher's vocabulary, and are left out; it "
            f"translates {translator.languages[0]}: is this text in that language?"
        )


def translate_in_chunks(
    translator: Translator, sources: Sequence[str], folder: Path, choices: TranslationChoices, progress: Progress
) -> list[Path]:
    """The files of all chunks, of which those that are not in the folder yet are made."""
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob(".*"):  # of a process that was killed
        left.unlink()
    starts = range(0, len(sources), choices.chunk)
    paths = [folder / f"{n:06d}.tsv" for n in range(len(starts))]
    for start, path in zip(starts, paths, strict=True):
        if not path.exists():
            rows = list(_translated(translator, sources[start : start + choices.chunk], choices))
            with atomic_write(path) as file:
                file.writelines(row.line() for row in rows)
        progress("Translating", min(start + choices.chunk, len(sources)), len(sources))
    return paths


def _translated(translator: Translator, lines: Sequence[str], choices: TranslationChoices) -> Iterator[TranslatedRow]:
    tokenizer, limit = translator.vocabulary.source, translator.recipe.data.filters.max_length
    ids = tokenizer.encode_batch(list(lines))
    unknown = set(unknown_lines(lines, ids, tokenizer))
    known = []
    for n, line in enumerate(lines):
        if len(ids[n]) > limit or n in unknown:
            yield TranslatedRow(line, "", reason="unknown" if n in unknown else "too_long")
        else:
            known.append(n)
    options = TranslationOptions(beam=choices.beam, nbest=choices.nbest, unknown=[], warn=lambda sentence: None)
    for n, best in zip(known, translator.translations([lines[n] for n in known], options), strict=True):
        pairs = [(_plain(each.text), each) for each in best]
        if not any(text for text, _ in pairs):
            yield TranslatedRow(lines[n], "", reason="empty")
        for text, each in pairs:
            if text:
                count = len(each.tokens) + 1  # and </s>
                yield TranslatedRow(lines[n], text, round(each.log_probability / count, 5), len(ids[n]) + 1, count)


def read_chunks(paths: Iterable[Path]) -> Iterator[TranslatedRow]:
    for path in paths:
        with open(path, encoding="utf-8", newline="\n") as file:
            try:
                yield from map(TranslatedRow.parse, file)
            except ValueError:
                raise RegardError(f"{path}: damaged; remove it, and the same command makes it anew") from None


def write_filtered(paths: Sequence[Path], out: Path, choices: TranslationChoices) -> Counter[str]:
    """Writes the pairs to learn from, as source TAB target; returns how many are kept, and left out for what reason."""
    rows = list(read_chunks(paths))
    counts = Counter(row.reason for row in rows if row.reason)
    rows = [row for row in rows if not row.reason]
    if choices.max_ratio:
        fits = [_ratio(row) <= choices.max_ratio for row in rows]
        counts["ratio"] = len(rows) - sum(fits)
        rows = [row for row, good in zip(rows, fits, strict=True) if good]
    if rows and choices.worst:
        least = float(np.quantile([row.score for row in rows], choices.worst))
        counts["unlikely"] = sum(row.score < least for row in rows)
        rows = [row for row in rows if row.score >= least]
    if not rows:
        reason = max(REASONS, key=lambda name: counts[name])
        raise RegardError(
            f"no translation is left to learn from: {counts[reason]:,} {REASONS[reason]}; give another text or teacher"
        )
    counts["kept"] = len(rows)
    with atomic_write(out) as file:
        file.writelines(f"{row.source}\t{row.target}\n" for row in rows)
    return counts


def _ratio(row: TranslatedRow) -> float:
    return max(row.source_pieces, row.target_pieces) / min(row.source_pieces, row.target_pieces)
