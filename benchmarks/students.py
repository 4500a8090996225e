"""Students beside their teacher: BLEU, chrF, sentences a second, milliseconds of one sentence, megabytes; one table.

The teacher translates its own training data, or --data, once; each student (`regard distil`) learns from that and from
the true text. Rows: the teacher, in our int8 and by CTranslate2 where they are there; each student, as trained, in 8
bits, in our int8, and by CTranslate2 if that knows its decoder; the teacher with each student as a draft, if that
can be one. What was done is kept in --out.

    python benchmarks/students.py runs/tatoeba [--students deep-shallow ssru] [--set training.steps=500] [--json FILE]
"""

import regard  # noqa: F401, I001  (before torch: it settles how OpenMP's threads wait)
import argparse
import shutil
import statistics
import sys
from pathlib import Path

from common import arguments, hardware, write_json

from regard.api import load
from regard.distil.measure import Form, MeasuredRow, drafted, forms_of, measure_translator
from regard.distil.pipeline import DistillationOptions, run_distillation
from regard.distil.student import PRESETS
from regard.distil.translations import TranslationChoices
from regard.errors import RegardError
from regard.examples.pairs import read_pairs

SPEEDS = ("sentences_per_second", "milliseconds")
SHARED = ("plan.json", "translations")  # what all students of a teacher learn from


def measure(forms: list[Form], options: argparse.Namespace) -> list[MeasuredRow]:
    """All forms take turns, so that what else the machine does meets all of them; medians of the rounds."""
    found: dict[str, list[MeasuredRow]] = {}
    loaded = [(form, form.loader(form.folder, options.device)) for form in forms]
    data = loaded[0][1].recipe.data
    pairs = read_pairs(data.test or data.valid, loaded[0][1].languages)[: options.lines]
    for _ in range(options.rounds):
        for form, translator in loaded:
            try:
                found.setdefault(form.name, []).append(measure_translator(form, translator, pairs))
            except RegardError as error:  # a recurrence as a draft: it cannot take back what it read
                print(f"{form.name}: {error}", file=sys.stderr)
    return [
        {**rows[0], **{key: statistics.median(row[key] for row in rows) for key in SPEEDS}}
        for rows in found.values()
        if rows
    ]


def teach(options: argparse.Namespace, student: str, out: Path, first: Path) -> None:
    """The translations are those of the first student."""
    if out != first and not out.exists():
        out.mkdir(parents=True)
        for name in SHARED[::-1]:
            (shutil.copytree if (first / name).is_dir() else shutil.copy)(first / name, out / name)
    own = DistillationOptions(
        TranslationChoices(beam=options.beam, chunk=options.chunk), lines=options.lines, device=options.device
    )
    result = run_distillation(options.teacher, student, options.data, out, options.set, own)
    if not result.finished:
        raise SystemExit(result.exit_code or 1)


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
    given.add_argument("--rounds", type=int, default=3, help="in which all are measured by turns")
    given.add_argument("--device", default="auto")
    return given


def main() -> None:
    options, notes = parser().parse_args(), list[str]()
    runs = {Path(student).stem: options.out / Path(student).stem for student in options.students}
    for student, out in zip(options.students, runs.values(), strict=True):
        teach(options, student, out, next(iter(runs.values())))
    forms = list(forms_of("teacher", options.teacher, options.device, notes))
    forms += [drafted(name, options.teacher, out / "student") for name, out in runs.items()]
    for name, out in runs.items():
        forms += forms_of(name, out / "student", options.device, notes)
        forms.append(Form(f"{name}, 8 bits", out / "student-int8", load))
    rows = measure(forms, options)
    print(*dict.fromkeys(notes), sep="\n", file=sys.stderr)
    print(f"{hardware()}\n\n| model | BLEU | chrF | sentences/s | ms p50 | MB |\n|---|---|---|---|---|---|")
    for row in rows:
        scores = ["—" if value is None else f"{value:.2f}" for value in (row["bleu"], row["chrf"])]
        speed = (f"{row['sentences_per_second']:,.1f}", f"{row['milliseconds']:.1f}", f"{row['megabytes']:.2f}")
        print("| " + " | ".join((row["model"], *scores, *speed)) + " |")
    write_json(options.json, {"hardware": hardware(), "rows": rows})


if __name__ == "__main__":
    sys.exit(main())
