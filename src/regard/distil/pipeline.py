"""From a teacher and a text to a small model, measured: translate, filter, train, store, measure; each step is kept.

A folder holds `translations/` (the chunks), `distilled.tsv`, `student/` (a run), `student-int8/`, `plan.json` and
`results.json`. The same command goes on where it was killed. Knows no command line.
"""

import contextlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import cast

from regard.api import load, load_as
from regard.console import Console
from regard.data.config import Corpus
from regard.data.prepared import file_hashes
from regard.distil.measure import Form, MeasuredRow, drafted, forms_of, measure_translator
from regard.distil.student import data_of, seed_run, student_recipe
from regard.distil.translations import (
    REASONS,
    TranslationChoices,
    check_known,
    has_targets,
    read_sources,
    translate_in_chunks,
    write_filtered,
)
from regard.errors import RegardError
from regard.examples.pairs import read_pairs
from regard.interop.families import export_run
from regard.interop.model_folder import Storage
from regard.io.atomic import atomic_write
from regard.io.files import json_safe, read_json
from regard.io.lock import lock_folder
from regard.io.manifest import model_digest
from regard.language import localise
from regard.predict.options import warn_caller
from regard.predict.translation import Translator
from regard.recipe import Recipe
from regard.reporting import Json, Progress, Warn
from regard.run import train_recipe
from regard.tasks.translation import TranslationConfig
from regard.training.log import PLAIN_INTERVAL

PLAN, FINISHED = "plan.json", "results.json"
FILTERS = {"max_ratio", "worst"}  # what of the plan the translations do not depend on


@dataclass(frozen=True)
class DistillationOptions:
    """What is not in the student's recipe."""

    translations: TranslationChoices = field(default_factory=TranslationChoices)
    truth: float = 1.0  # weight of the true text among what is learned from; 0: translations alone
    lines: int = 1000  # of the test data, at most, that is measured on
    device: str = "auto"

    def __post_init__(self) -> None:
        if self.truth < 0:
            raise ValueError(f"truth must be 0 or more, not {self.truth:g}")
        if self.lines < 1:
            raise ValueError(f"lines must be at least 1, not {self.lines}")


DEFAULT = DistillationOptions()


@dataclass(frozen=True)
class Distillation:
    """What came of it."""

    folder: Path
    counts: Counter[str]
    rows: list[MeasuredRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    finished: bool = True
    exit_code: int = 0

    def json(self) -> Json:
        known = {"out": str(self.folder), "finished": self.finished, "translations": dict(self.counts)}
        return {**known, "models": self.rows, "notes": self.notes}


@dataclass(frozen=True)
class Reports:
    """Where sentences and progress go."""

    console: Console = field(default_factory=lambda: Console(stderr=True))
    warn: Warn = warn_caller

    def say(self, sentence: str) -> None:
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def progress(self) -> Iterator[Progress]:
        """A line that changes on a terminal, and elsewhere one now and then."""
        with self.console.status(localise("Translating")) as status:
            printed = time.monotonic()

            def show(what: str, done: int, of: int) -> None:
                nonlocal printed
                shown = f"{localise(what)}: {done:,} / {of:,}"
                status.update(shown)
                if not self.console.is_terminal and time.monotonic() - printed > PLAIN_INTERVAL:
                    printed = time.monotonic()
                    self.say(shown)

            yield show


def run_distillation(
    teacher: Path,
    student: str,
    data: Sequence[str],
    out: Path,
    overrides: Sequence[str] = (),
    options: DistillationOptions = DEFAULT,
    reports: Reports | None = None,
) -> Distillation:
    """All steps; those that are done already are not done again.

    `student` is a preset or a recipe, `data` what `--data` takes; without any, the teacher's own training data.
    """
    reports = reports or Reports()
    translator = load_as(Translator, teacher, options.device, "distil")
    theirs = cast(Recipe, translator.recipe)
    texts = [corpus for value in data for corpus in data_of("--data", _yaml(value))] if data else theirs.data.train
    if not texts:
        raise RegardError(f"{teacher}: its recipe names no training data any more; give a text with --data")
    texts = [corpus.absolute() for corpus in texts]
    pairs, run = out / "distilled.tsv", out / "student"
    truth = [replace(each, weight=each.weight * options.truth) for each in texts if has_targets(each)]
    train = [*(each for each in truth if each.weight), Corpus(path=str(pairs.absolute()))]
    recipe = student_recipe(student, overrides, theirs, teacher, train, run)
    sources = read_sources(texts, translator.languages)
    with _claimed(out):
        _check_plan(out, _plan(teacher, texts, translator, options))
        counts = _learning_text(translator, sources, out, pairs, options.translations, reports)
        del translator  # whose weights need not be there while the student learns
        same_vocabulary = seed_run(recipe, theirs, teacher, run)
        if not same_vocabulary:
            reports.say("the student has a vocabulary of its own: it cannot be a draft for its teacher")
        outcome = train_recipe(recipe, run, options.device, console=reports.console)
        if not outcome.finished:
            return Distillation(out, counts, finished=False, exit_code=outcome.exit_code)
        guesses = same_vocabulary and recipe.model.rolls_back and theirs.model.rolls_back
        rows, notes = _measured(teacher, recipe, sources, out, options, guesses, reports)
    return Distillation(out, counts, rows, notes)


def _yaml(value: str) -> object:
    """--data: a name, or YAML where it begins as a list or a mapping does."""
    import yaml

    if not value.startswith(("[", "{")):
        return value
    try:
        return cast(object, yaml.safe_load(value))
    except yaml.YAMLError as error:
        raise RegardError(f"--data {value}: not YAML ({str(error).splitlines()[0]})") from None


@contextlib.contextmanager
def _claimed(out: Path) -> Iterator[None]:
    """The folder, for this process alone."""
    if out.exists() and not out.is_dir():
        raise RegardError(f"{out} is a file; give another --out")
    strange = out.exists() and any(not path.name.startswith(".") for path in out.iterdir())
    if strange and not (out / PLAN).exists():
        raise RegardError(f"{out} is not empty, and no distillation was begun there; give another --out")
    out.mkdir(parents=True, exist_ok=True)
    with lock_folder(out, out / ".lock") as free:
        if not free:
            raise RegardError(f"{out}: another process distils here")
        yield


# --- the text to learn from ----------------------------------------------------------------------------------------


def _plan(teacher: Path, texts: Sequence[Corpus], translator: Translator, options: DistillationOptions) -> Json:
    """What the translations depend on, and what is left out of them."""
    choices = options.translations
    names = translator.languages
    return {
        "teacher": model_digest(teacher),
        "text": [[each.name, file_hashes(each, names if has_targets(each) else None)] for each in texts],
        "nbest": choices.nbest,
        "beam": choices.beam,
        "chunk": choices.chunk,
        "max_ratio": choices.max_ratio,
        "worst": choices.worst,
    }


def _check_plan(out: Path, plan: Json) -> None:
    """A folder holds the translations of one teacher and text: until the first of them all may change, and what is
    left out of them until a student begins to learn."""
    plan = json.loads(json.dumps(plan))
    before = read_json(out / PLAN) if (out / PLAN).exists() else {}
    changed = [name for name in plan if name in before and before[name] != plan[name]]
    fixed = set(plan)
    if not (out / "student").exists():
        fixed = fixed - FILTERS if any((out / "translations").glob("*.tsv")) else set()
    if fixed & set(changed):
        raise RegardError(
            f"{out} has the translations of another plan ({', '.join(changed)} changed); give another --out, or what "
            "it was begun with"
        )
    with atomic_write(out / PLAN) as file:
        file.write(json.dumps(plan, indent=1) + "\n")


def _learning_text(
    translator: Translator,
    sources: Sequence[str],
    out: Path,
    pairs: Path,
    choices: TranslationChoices,
    reports: Reports,
) -> Counter[str]:
    """The translations in chunks, and the pairs that are learned from; says how many were left out, and why."""
    check_known(sources, translator, reports.warn)
    with reports.progress() as progress:
        paths = translate_in_chunks(translator, sources, out / "translations", choices, progress)
    counts = write_filtered(paths, pairs, choices)
    counts["sources"] = len(sources)
    reports.say(f"{counts['kept']:,} translations of {len(sources):,} lines to learn from")
    for reason, what in REASONS.items():
        if counts[reason]:
            reports.say(f"left out: {counts[reason]:,} {what}")
    return counts


# --- measuring -----------------------------------------------------------------------------------------------------


def _measured(
    teacher: Path,
    recipe: Recipe,
    sources: Sequence[str],
    out: Path,
    options: DistillationOptions,
    guesses: bool,
    reports: Reports,
) -> tuple[list[MeasuredRow], list[str]]:
    """Teacher and student in every form it goes out in, also as the teacher's draft where it `guesses`; what is
    measured is kept, for these weights."""
    run, small = out / "student", out / "student-int8"
    digest, kept = model_digest(run), read_json(out / FINISHED) if (out / FINISHED).exists() else {}
    fresh = kept.get("student") == digest and kept.get("lines") == options.lines
    rows: list[MeasuredRow] = kept["models"] if fresh else []
    notes: list[str] = []
    for left in (*out.glob(f".{small.name}.*"), *([small] if kept.get("student") != digest else [])):
        shutil.rmtree(left, ignore_errors=True)  # of a process that was killed, or of other weights
    if not small.exists():
        reports.say(f"{small}: {export_run('safetensors', run, small, '', Storage(8))}")
    corpora = recipe.data.test or recipe.data.valid
    pairs = read_pairs(corpora, cast(TranslationConfig, recipe.task).languages)[: options.lines] if corpora else []
    if not corpora:
        notes.append("the recipe names no test data: BLEU and chrF are not measured; give data.test")
        reports.say(notes[-1])
    examples = pairs or [(source, "") for source in sources[:: max(1, len(sources) // options.lines)]][: options.lines]
    forms = [Form("teacher", teacher, load), *forms_of("student", run, options.device, notes)]
    forms += [Form("student, 8 bits", small, load), *([drafted("student", teacher, run)] if guesses else [])]
    for form in forms:
        if form.name in [row["model"] for row in rows]:
            continue
        translator = load_as(Translator, form.folder, options.device, "distil", form.loader)
        try:
            rows.append(measure_translator(form, translator, examples, bool(pairs)))
        except RegardError as error:
            if form.decoding is None:
                raise
            notes.append(str(error))  # a student that cannot be a draft
            continue
        with atomic_write(out / FINISHED) as file:
            about = {"student": digest, "lines": options.lines, "data": [each.name for each in corpora]}
            choices = asdict(options.translations) | {"truth": options.truth}
            file.write(json.dumps(json_safe({**about, "options": choices, "models": rows}), indent=1) + "\n")
    return rows, notes
