"""The commands around training: train, average, info, and the list of every key that `regard train --help` prints."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

from rich.table import Table

from regard import __version__, config
from regard.console import Console
from regard.errors import RegardError, plural
from regard.io.files import os_errors_for
from regard.io.run_folder import CONFIG, RESULTS, TASK_FILES, WEIGHTS, run_folder_of
from regard.io.tensors import average_checkpoints as averaged
from regard.io.tensors import write_tensors
from regard.recipe import read_recipe
from regard.training.checkpoint import CheckpointManager


def train(
    recipe: str, overrides: list[str], out: Path | None, device: str, minutes: float | None, as_json: bool
) -> int:
    from regard import recipe as recipes
    from regard.cli.translate import print_metrics
    from regard.run import train_recipe as run
    from regard.training.interrupt import check_minutes

    if recipe and "=" in recipe:
        raise RegardError(
            f"the first argument is the recipe, and {recipe} is an override; write regard train RECIPE {recipe}"
        )
    out = out or Path("runs") / Path(recipe).stem
    outcome = run(recipes.load_recipe(recipe, overrides, out), out, device, check_minutes(minutes))
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

    lines = [
        "",
        f"Shipped recipes: {', '.join(shipped_recipes())}",
        "",
        "Keys of a recipe (key, type, default: meaning):",
        "",
    ]
    for key, kind, default, meaning in config.describe_options(Recipe):
        lines += [f"  {key}  {kind}  [{default}]", f"      {meaning}"] if meaning else [f"  {key}  {kind}  [{default}]"]
    return "\n".join(lines) + "\n"


def average(runs: list[Path], out: Path, last: int) -> None:
    if last and len(runs) > 1:
        raise RegardError("--last takes the checkpoints of one run; give one run, or several models without --last")
    homes, files = [run_folder_of(run) for run in runs], runs
    if last:
        read_recipe(runs[0])  # a sentence if it is no run
        files = CheckpointManager(runs[0]).last_folders(last)
        if len(files) < last:
            raise RegardError(f"{runs[0]} has {plural(len(files), 'checkpoint')}, not {last}; lower --last")
    _alike(homes)
    if out.exists() and any(out.iterdir()):
        raise RegardError(f"{out} is not empty; give another --out")
    tensors, home = averaged(files), homes[0]
    with os_errors_for(out, "written"):
        out.mkdir(parents=True, exist_ok=True)
        shutil.copy(home / CONFIG, out / CONFIG)
        for part in TASK_FILES:
            if (home / part).is_dir():
                shutil.copytree(home / part, out / part, dirs_exist_ok=True)
            elif (home / part).exists():
                shutil.copy(home / part, out / part)
        write_tensors(out / WEIGHTS, tensors)
    Console(stderr=True).print(f"the average of {len(files)} is in {out}", highlight=False)


def _alike(homes: list[Path]) -> None:
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


def info(run: Path | None, as_json: bool) -> None:
    facts = _installation() if run is None else _model(run)
    if as_json:
        print(json.dumps(facts, indent=1, ensure_ascii=False))
        return
    if "of" in facts:
        facts["step"] = f"{facts['step']:,} of {facts.pop('of'):,}"
    table = Table(show_header=False, title=f"regard {__version__}" if run is None else str(run), title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in facts.items():
        table.add_row(key, _shown(value))
    Console().print(table)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _installation() -> dict[str, Any]:
    import platform

    import torch

    from regard.data.catalog import cache_root, data_folders
    from regard.device import device_name
    from regard.recipe import shipped_recipes

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "version": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "devices": gpus or [device_name(torch.device("cpu"))],
        "recipes": list(shipped_recipes()),
        "data": [str(folder) for folder in data_folders()],
        "cache": str(cache_root()),
    }


def _short(section: Any) -> dict[str, Any]:
    """What of a section is not as it would be by default; `config.yaml` has it all."""
    plain = config.to_plain(section)
    for field in dataclasses.fields(section):
        usual = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if field.name == "preset" or (field.name != "kind" and plain[field.name] == config.to_plain(usual)):
            del plain[field.name]
    return plain


def _model(run: Path) -> dict[str, Any]:
    from regard.training.checkpoint import read_state

    recipe = read_recipe(run)
    facts: dict[str, Any] = {
        "task": recipe.task.title,
        "model": _short(recipe.model),
        "text": _short(recipe.text),
        "data": [corpus.name for corpus in recipe.data.train],
    }
    checkpoints = CheckpointManager(run)
    if checkpoints.exists():
        progress = read_state(checkpoints.last.resolve())
        facts |= {"step": progress.step, "of": recipe.training.steps, "checkpoints": checkpoints.steps()}
    results = run / RESULTS
    if results.exists():
        try:
            found = json.loads(results.read_text(encoding="utf-8"))
        except ValueError as error:
            raise RegardError(f"{results}: damaged ({error})") from None
        facts |= {
            key: found[key] for key in ("parameters", "weights", "seconds", "device", "seed", "commit") if key in found
        }
        measured = (found.get("valid") or {}).get("metrics", {})
        facts["valid"] = {name: round(entry["value"], 2) for name, entry in measured.items()}
    return facts
