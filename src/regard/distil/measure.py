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
from regard.decoding import DecodingConfig, Speculative
from regard.decoding.shortlist import FILE as SHORTLIST
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


class Form(NamedTuple):
    """A model as it is used: where it lies, how it is loaded, and how it searches, if not as its recipe says."""

    name: str
    folder: Path
    loader: ModelLoader
    decoding: DecodingConfig | None = None

    def megabytes(self) -> float:
        """Weights, config and vocabulary, whatever else is there, and those of a draft; of CTranslate2, its export."""
        home = run_folder_of(self.folder)
        files = [self.folder / WEIGHTS, home / CONFIG, *(home / "tokenizer").rglob("*")]
        if self.name.endswith(CT2):
            files = list((self.folder / "ct2-int8").rglob("*"))
        draft = self.decoding.draft if isinstance(self.decoding, Speculative) else None
        beside = Form("draft", Path(draft), load).megabytes() if draft else 0.0
        return beside + sum(path.stat().st_size for path in files if path.is_file()) / 1e6


def measure_translator(
    form: Form, translator: Translator, pairs: Sequence[tuple[str, str]], references: bool = True
) -> MeasuredRow:
    """All sources at once, then some of them one by one."""
    sources, decoding = [source for source, _ in pairs], form.decoding
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
        model=form.name,
        bleu=bleu,
        chrf=chrf,
        sentences_per_second=round(len(sources) / seconds, 2),
        milliseconds=round(1000 * statistics.median(times), 2),
        megabytes=round(form.megabytes(), 3),
    )


def _ignore(sentence: str) -> None:
    """What is cut is cut for all alike."""


def drafted(name: str, teacher: Path, student: Path) -> Form:
    """The teacher's greedy words, guessed by a student and checked by the teacher."""
    return Form(f"teacher, draft {name}", teacher, load, Speculative(draft=str(student.absolute())))


def forms_of(name: str, run: Path, device: str, notes: list[str]) -> Iterator[Form]:
    """A run as it was trained, in our int8, and by CTranslate2, on a device; `notes` gets why one is not there."""
    yield Form(name, run, load)
    if pick_device(device).type != "cpu":
        notes.append("int8 is for CPUs, and was not measured; regard translate has --precision int8 --device cpu")
    elif reason := int8_unsupported_reason():
        notes.append(f"int8 was not measured: {reason}")
    else:
        yield Form(f"{name}, int8", run, partial(load, precision=INT8))
        if (run_folder_of(run) / SHORTLIST).exists():
            yield Form(f"{name}, int8, shortlist", run, partial(load, precision=INT8, shortlist=True))
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
