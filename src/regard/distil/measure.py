"""Translators measured beside each other: quality, sentences a second, time of one sentence, size on disk."""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from regard.io.run_folder import CONFIG, WEIGHTS, run_folder_of
from regard.predict.translation import Translator

WARM_UP, ALONE = 3, 50  # sentences, before and for the time of one


class MeasuredRow(TypedDict):
    """A line of the table."""

    model: str
    bleu: float | None  # None: there are no references
    chrf: float | None
    sentences_per_second: float
    milliseconds: float  # of one sentence alone, the median
    megabytes: float


def measure_translator(
    name: str, translator: Translator, pairs: Sequence[tuple[str, str]], megabytes: float, references: bool = True
) -> MeasuredRow:
    """All sources at once, then some of them one by one."""
    sources = [source for source, _ in pairs]
    translator.translate(sources[:WARM_UP], warn=_ignore, unknown=[])
    start = time.perf_counter()
    outputs = translator.translate(sources, form="prepared", warn=_ignore, unknown=[])
    seconds = time.perf_counter() - start
    metrics = translator.metrics(outputs, pairs) if references else {}
    times = []
    for source in sources[:: max(1, len(sources) // ALONE)][:ALONE]:
        start = time.perf_counter()
        translator.translate([source], warn=_ignore, unknown=[])
        times.append(time.perf_counter() - start)
    bleu, chrf = (metrics[key].value if key in metrics else None for key in ("bleu", "chrf"))
    return MeasuredRow(
        model=name,
        bleu=bleu,
        chrf=chrf,
        sentences_per_second=round(len(sources) / seconds, 2),
        milliseconds=round(1000 * statistics.median(times), 2),
        megabytes=round(megabytes, 3),
    )


def _ignore(sentence: str) -> None:
    """What is cut is cut for all alike."""


def model_megabytes(folder: Path) -> float:
    """Weights, config and vocabulary of a model folder or a run, whatever else is there."""
    home = run_folder_of(folder)
    files = [folder / WEIGHTS, home / CONFIG, *(home / "tokenizer").rglob("*")]
    return sum(path.stat().st_size for path in files if path.is_file()) / 1e6


def folder_megabytes(folder: Path) -> float:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
