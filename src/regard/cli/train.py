"""`regard train`, `tune`, `distil` and `average`; the list of every key of a recipe, for `regard train --help`.

Training and resuming are in `regard/run.py`, the loop in `training/loop.py`.
"""

import contextlib
import json
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from regard import config
from regard.console import Console
from regard.errors import RegardError, plural
from regard.io.files import os_errors_for
from regard.io.manifest import SETUP, verified, write_manifest
from regard.io.run_folder import CONFIG, TASK_FILES, WEIGHTS, run_folder_of
from regard.io.tensors import average_checkpoints, sharded_files, write_tensors
from regard.language import localise
from regard.recipe import read_recipe
from regard.training.checkpoint import CheckpointManager
from regard.training.schedule import LinearSchedule

if TYPE_CHECKING:
    from regard.recipe import Recipe

SHORTER = 4  # tuning takes a quarter of the steps that a run had, …
RATE, FROZEN_RATE = 7e-4, 2e-3  # … and rates that leave a trained model much as it is, or teach new heads alone

if TYPE_CHECKING:
    from regard.distil.measure import MeasuredRow


def train(
    recipe: str,
    overrides: list[str],
    out: Path | None,
    device: str,
    minutes: float | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    from regard import recipe as recipes
    from regard import run as runs
    from regard.cli.info import print_facts

    if recipe and "=" in recipe:
        raise RegardError(
            f"the first argument is the recipe, and {recipe} is an override; write regard train RECIPE {recipe}"
        )
    out = out or Path("runs") / Path(recipe).stem
    loaded = recipes.load_recipe(recipe, overrides, out)
    if dry_run:
        print_facts(runs.dry_run(loaded, device), f"{recipe}, a dry run", as_json)
        return 0
    return _train(loaded, out, device, minutes, as_json)


def tune(
    run: Path,
    overrides: list[str],
    proposals: int,
    frozen: bool,
    steps: int | None,
    out: Path,
    device: str,
    minutes: float | None,
    as_json: bool,
) -> int:
    """Train a run further with proposal heads: its own recipe, with what is changed."""
    from regard import recipe as recipes

    before = read_recipe(run)
    if not before.model.rolls_back or before.task.kind not in ("translation", "lm", "chat"):
        raise RegardError(
            f"{run}: a model {before.model.kind} of the task {before.task.kind} is not searched blockwise, so proposal "
            "heads have no use; a transformer or an lm that writes text is"
        )
    count = steps or max(1, before.training.steps // SHORTER)
    validation = before.training.validation
    training = replace(
        before.training,
        init=str(run.absolute()),
        steps=count,
        schedule=LinearSchedule(peak=FROZEN_RATE if frozen else RATE, warmup=count // 10),
        validation=replace(validation, every=min(validation.every, count), patience=0),
        # the last: where the model itself is frozen, its goal makes no difference
        checkpoints=replace(before.training.checkpoints, average=1),
    )
    changed = config.to_plain(replace(before, training=training))
    changed["model"]["proposals"] = {"heads": proposals, "frozen": frozen}
    return _train(recipes.load_recipe(changed, overrides, out), out, device, minutes, as_json)


def _train(loaded: "Recipe", out: Path, device: str, minutes: float | None, as_json: bool) -> int:
    from regard import run as runs
    from regard.cli.evaluate import print_metrics
    from regard.training.interrupt import check_minutes

    outcome = runs.train_recipe(loaded, out, device, check_minutes(minutes))
    if not outcome.is_main:
        return outcome.exit_code
    if as_json:
        state = {"finished": outcome.finished, "step": outcome.state.step}
        print(json.dumps(state | outcome.results, indent=1, ensure_ascii=False))
    elif outcome.results.get("valid"):
        print_metrics(outcome.results["valid"])
    return outcome.exit_code


def recipe_help() -> str:
    """Every key of a recipe with its type, default and meaning."""
    from regard.recipe import Recipe, shipped_recipes

    config.load_allowed_plugins()
    lines = [
        "",
        localise(f"Shipped recipes: {', '.join(shipped_recipes())}"),
        "",
        localise("Keys of a recipe (key, type, default: meaning):"),
        "",
    ]
    for key, kind, default, meaning in config.describe_options(Recipe):
        shown = localise(default) if default == "required" else default
        lines += [f"  {key}  {kind}  [{shown}]", *([f"      {localise(meaning)}"] if meaning else [])]
    return "\n".join(lines) + "\n"


def distil(
    teacher: Path, student: str, data: list[str], overrides: list[str], out: Path | None, as_json: bool, **options: Any
) -> int:
    """`options` are those of DistillationOptions and TranslationChoices, by name."""
    from regard.cli.streams import warn
    from regard.distil.pipeline import DistillationOptions, Reports, run_distillation
    from regard.distil.translations import TranslationChoices

    names = {f.name for f in fields(TranslationChoices)}
    try:
        choices = TranslationChoices(**{name: value for name, value in options.items() if name in names})
        others = {name: value for name, value in options.items() if name not in names}
        chosen = DistillationOptions(choices, **others)
    except ValueError as error:
        raise RegardError(f"--{str(error).replace('_', '-', 1)}") from None
    out = out or Path("runs") / f"{teacher.name}-{Path(student).stem}"
    result = run_distillation(teacher, student, data, out, overrides, chosen, Reports(warn=warn))
    if as_json:
        print(json.dumps(result.json(), indent=1, ensure_ascii=False))
    elif result.finished:
        _print_students(result.rows, result.folder)
        for note in result.notes:
            warn(note)
    return result.exit_code


def _print_students(rows: "list[MeasuredRow]", folder: Path) -> None:
    table = Table()
    for name in ("model", "BLEU", "chrF", "sentences/s", "ms", "MB"):
        table.add_column(localise(name), justify="left" if name == "model" else "right")
    for row in rows:
        scores = ["—" if value is None else f"{value:.2f}" for value in (row["bleu"], row["chrf"])]
        speed = [f"{row['sentences_per_second']:,.1f}", f"{row['milliseconds']:.1f}", f"{row['megabytes']:.2f}"]
        table.add_row(localise(row["model"]), *scores, *speed)
    Console().print(table)
    Console(stderr=True).print(
        f"the student is {folder / 'student'}, in 8 bits {folder / 'student-int8'}", highlight=False, soft_wrap=True
    )


def average(runs: list[Path], out: Path, last: int) -> None:
    if last and len(runs) > 1:
        raise RegardError("--last takes the checkpoints of one run; give one run, or several models without --last")
    homes, files = [run_folder_of(run) for run in runs], runs
    if last:
        read_recipe(runs[0])  # a sentence if it is no run
        files = CheckpointManager(runs[0]).last_folders(last)
        if len(files) < last:
            raise RegardError(f"{runs[0]} has {plural(len(files), 'checkpoint')}, not {last}; lower --last")
    _check_same_shape(homes)
    if out.exists() and any(out.iterdir()):
        raise RegardError(f"{out} is not empty; give another --out")
    home = homes[0]
    with contextlib.ExitStack() as checks:
        for folder in files:
            checks.enter_context(verified(folder, [path.name for path in sharded_files(folder, "model")]))
        for folder in homes:
            checks.enter_context(verified(folder, SETUP))
        tensors = average_checkpoints(files)
    with os_errors_for(out, "written"):
        out.mkdir(parents=True, exist_ok=True)
        shutil.copy(home / CONFIG, out / CONFIG)
        for part in TASK_FILES:
            if (home / part).is_dir():
                shutil.copytree(home / part, out / part, dirs_exist_ok=True)
            elif (home / part).exists():
                shutil.copy(home / part, out / part)
        write_tensors(out / WEIGHTS, tensors)
        write_manifest(out)
    Console(stderr=True).print(f"the average of {len(files)} is in {out}", highlight=False)


def _check_same_shape(homes: list[Path]) -> None:
    """Only models of one shape with one vocabulary have a meaningful average."""
    first = read_recipe(homes[0])
    for home in homes[1:]:
        if changed := list(
            config.describe_changes(config.to_plain(first.model), config.to_plain(read_recipe(home).model), "model")
        ):
            raise RegardError(f"{home} has another model than {homes[0]} ({changed[0]})")
        for file in sorted((homes[0] / "tokenizer").iterdir()):
            other = home / "tokenizer" / file.name
            if not other.exists() or other.read_bytes() != file.read_bytes():
                raise RegardError(f"{home} has another vocabulary than {homes[0]}")
