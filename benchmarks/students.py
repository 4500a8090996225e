"""Students beside their teacher: BLEU, chrF, sentences a second, milliseconds of one sentence, megabytes; one table.

The teacher translates its own training data, or --data, once; each student (`regard distil`) learns from that and from
the true text. Rows: the teacher, in our int8 and by CTranslate2 where they are there; each student, as trained, in 8
bits, in our int8, and by CTranslate2 if that knows its decoder. What was done is kept in --out.

    python benchmarks/students.py runs/tatoeba [--students deep-shallow ssru] [--set training.steps=500] [--json FILE]
"""

import regard  # noqa: F401, I001  (before torch: it settles how OpenMP's threads wait)
import argparse
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from common import arguments, hardware, write_json

from regard.api import ModelLoader, load
from regard.console import Console
from regard.distil.measure import MeasuredRow, folder_megabytes, measure_translator, model_megabytes
from regard.distil.pipeline import DistillationOptions, Reports, run_distillation
from regard.distil.student import PRESETS
from regard.distil.translations import TranslationChoices
from regard.examples.pairs import read_pairs
from regard.interop.engines import engine_loader
from regard.predict.base import PRECISIONS
from regard.predict.translation import Translator

SHARED = ("plan.json", "translations")  # what all students of a teacher learn from


def teachers(teacher: Path) -> Iterator[tuple[str, ModelLoader]]:
    """Faster forms of the teacher, of those that are there."""
    if "int8" in PRECISIONS:
        yield "teacher, int8", partial(load, precision="int8")
    if find_spec("ctranslate2") is not None:
        yield "teacher, CTranslate2 int8", engine_loader("ct2", "int8")


def measure_teacher(teacher: Path, lines: int, device: str) -> list[MeasuredRow]:
    rows = []
    for name, loader in teachers(teacher):
        translator: Translator = loader(teacher, device)
        data = translator.recipe.data
        pairs = read_pairs(data.test or data.valid, translator.languages)[:lines]
        compiled = teacher / "ct2-int8"
        size = folder_megabytes(compiled) if "CTranslate2" in name else model_megabytes(teacher)
        rows.append(measure_translator(name, translator, pairs, size))
    return rows


def teach(options: argparse.Namespace, student: str, out: Path, first: Path) -> list[MeasuredRow]:
    """A student's rows, the teacher's first; the translations are those of the first student."""
    if out != first and not out.exists():
        out.mkdir(parents=True)
        for name in SHARED[::-1]:
            (shutil.copytree if (first / name).is_dir() else shutil.copy)(first / name, out / name)
    console = Console(stderr=True)
    say = partial(console.print, highlight=False, soft_wrap=True)
    reports = Reports(say, say, lambda what, done, of: say(f"{what}: {done:,} of {of:,}"), console)
    own = DistillationOptions(
        TranslationChoices(beam=options.beam, chunk=options.chunk), lines=options.lines, device=options.device
    )
    result = run_distillation(options.teacher, student, options.data, out, options.set, own, reports)
    if not result.finished:
        raise SystemExit(result.exit_code or 1)
    return [{**row, "model": row["model"].replace("student", student)} for row in result.rows]


def parser() -> argparse.ArgumentParser:
    given = arguments(__doc__)
    given.add_argument("teacher", type=Path)
    given.add_argument("--students", nargs="+", default=list(PRESETS), help="presets, or recipes")
    given.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="keys of the students' recipes")
    given.add_argument("--data", nargs="+", default=[], help="text to translate; default: the teacher's own")
    given.add_argument("--out", type=Path, default=Path("runs/students"))
    given.add_argument("--beam", type=int, help="of the teacher, when it translates")
    given.add_argument("--chunk", type=int, default=10_000)
    given.add_argument("--lines", type=int, default=1000, help="of the test data")
    given.add_argument("--device", default="auto")
    return given


def main() -> None:
    options = parser().parse_args()
    rows: list[MeasuredRow] = []
    for student in options.students:
        found = teach(options, student, options.out / Path(student).stem, options.out / Path(options.students[0]).stem)
        rows += found if not rows else found[1:]
    rows[1:1] = measure_teacher(options.teacher, options.lines, options.device)
    print(f"{hardware()}\n\n| model | BLEU | chrF | sentences/s | ms p50 | MB |\n|---|---|---|---|---|---|")
    for row in rows:
        scores = ["—" if value is None else f"{value:.2f}" for value in (row["bleu"], row["chrf"])]
        speed = (f"{row['sentences_per_second']:,.1f}", f"{row['milliseconds']:.1f}", f"{row['megabytes']:.2f}")
        print("| " + " | ".join((row["model"], *scores, *speed)) + " |")
    write_json(options.json, {"hardware": hardware(), "rows": rows})


if __name__ == "__main__":
    sys.exit(main())
