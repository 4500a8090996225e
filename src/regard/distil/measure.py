"""Translators measured beside each other: quality, sentences a second, time of one sentence, size on disk."""

import importlib.util
import statistics
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypedDict

from regard.accel.int8 import INT8, int8_unsupported_reason
from regard.api import ModelLoader, load
from regard.decoding import DecodingConfig
from regard.device import pick_device
from regard.errors import RegardError
from regard.interop.engines import engine_loader
from regard.io.run_folder import CONFIG, WEIGHTS, run_folder_of
from regard.predict.translation import Translator

CT2 = "CTranslate2 int8"
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
    name: str,
    translator: Translator,
    pairs: Sequence[tuple[str, str]],
    megabytes: float,
    references: bool = True,
    decoding: DecodingConfig | None = None,
) -> MeasuredRow:
    """All sources at once, then some of them one by one; by the recipe's search, unless one is given."""
    sources = [source for source, _ in pairs]
    translator.translate(sources[:WARM_UP], decoding, warn=_ignore, unknown=[])
    start = time.perf_counter()
    outputs = translator.translate(sources, decoding, form="prepared", warn=_ignore, unknown=[])
    seconds = time.perf_counter() - start
    metrics = translator.metrics(outputs, pairs) if references else {}
    times = []
    for source in sources[:: max(1, len(sources) // ALONE)][:ALONE]:
        start = time.perf_counter()
        translator.translate([source], decoding, warn=_ignore, unknown=[])
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


class Form(NamedTuple):
    """A model as it is used: where it lies, and how it is loaded."""

    name: str
    folder: Path
    loader: ModelLoader

    def megabytes(self) -> float:
        """Weights, config and vocabulary, whatever else is there; of CTranslate2, its export."""
        home = run_folder_of(self.folder)
        files = [self.folder / WEIGHTS, home / CONFIG, *(home / "tokenizer").rglob("*")]
        if self.name.endswith(CT2):
            files = list((self.folder / "ct2-int8").rglob("*"))
        return sum(path.stat().st_size for path in files if path.is_file()) / 1e6


def forms_of(name: str, run: Path, device: str, notes: list[str]) -> Iterator[Form]:
    """A run as it was trained, in our int8, and by CTranslate2, on a device; `notes` gets why one is not there."""
    yield Form(name, run, load)
    if pick_device(device).type != "cpu":
        notes.append("int8 is for CPUs, and was not measured; regard translate has --precision int8 --device cpu")
    elif reason := int8_unsupported_reason():
        notes.append(f"int8 was not measured: {reason}")
    else:
        yield Form(f"{name}, int8", run, partial(load, precision=INT8))
    if importlib.util.find_spec("ctranslate2") is None:
        notes.append('CTranslate2 is not installed, so nothing is exported to it: pip install "regard[fast]"')
        return
    try:
        loader = engine_loader("ct2", "int8")
        loader(run, device)
    except RegardError as error:  # a decoder or a device that it does not know
        notes.append(str(error))
        return
    yield Form(f"{name}, {CT2}", run, loader)
