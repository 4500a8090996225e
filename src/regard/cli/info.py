"""`regard info`: what this installation has, or what a trained model is and how well it did."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from rich.table import Table

from regard import __version__, config
from regard.console import Console
from regard.errors import RegardError, plural
from regard.io.files import DamagedFile, read_json
from regard.io.manifest import SETUP, check_links, find_damage, model_digest, read_manifest, verified
from regard.io.run_folder import RESULTS, WEIGHTS
from regard.recipe import read_recipe
from regard.training.checkpoint import CheckpointManager, read_state


def info(run: Path | None, as_json: bool, verify: bool = False) -> None:
    if verify:
        facts = _verify(run)
    else:
        facts = _installation_facts() if run is None else _model_facts(run)
    if as_json:
        print(json.dumps(facts, indent=1, ensure_ascii=False))
        return
    if "of" in facts:
        facts["step"] = f"{facts['step']:,} of {facts.pop('of'):,}"
    table = Table(show_header=False, title=f"regard {__version__}" if run is None else str(run), title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in facts.items():
        table.add_row(key, _text(value))
    Console().print(table)


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _installation_facts() -> dict[str, object]:
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


def _non_default(section: Any) -> dict[str, object]:
    """The keys of a section that differ from their defaults; `config.yaml` has all."""
    plain = config.to_plain(section)
    for field in dataclasses.fields(section):
        usual = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        if field.name == "preset" or plain[field.name] == config.to_plain(usual):
            del plain[field.name]
    return plain


def _verify(run: Path | None) -> dict[str, object]:
    """What is whole in a run or model folder and its checkpoints; raises DamagedFile with all that is not."""
    if run is None or not run.is_dir():
        raise RegardError(
            f"{run}: there is no such folder" if run else "--verify takes a run: regard info RUN --verify"
        )
    damage: list[str] = []
    facts: dict[str, object] = {}
    for folder in (run, *CheckpointManager(run).all_folders()):
        try:
            check_links(folder, (*SETUP, WEIGHTS, RESULTS) if folder == run else None)
            records = read_manifest(folder)
            damage += find_damage(folder)
        except RegardError as error:
            damage.append(str(error))
            continue
        name = folder.name if folder != run else "files"
        facts[name] = "unverified (no manifest.json)" if records is None else f"{plural(len(records), 'file')} whole"
    if damage:
        raise DamagedFile("; ".join(damage))
    return facts | {"digest": model_digest(run)}


def _model_facts(run: Path) -> dict[str, object]:
    with verified(run, SETUP):
        recipe = read_recipe(run)
    facts: dict[str, object] = {
        "task": recipe.task.title,
        "model": _non_default(recipe.model),
        "text": _non_default(recipe.text),
        "data": [corpus.name for corpus in recipe.data.train],
    }
    if read_manifest(run) is None:
        facts["files"] = "unverified (no manifest.json)"
    checkpoints = CheckpointManager(run)
    if folders := checkpoints.all_folders():
        with verified(folders[0], ("state.json",)):
            progress = read_state(folders[0])
        facts |= {"step": progress.step, "of": recipe.training.steps, "checkpoints": checkpoints.steps()}
    path = run / RESULTS
    if path.exists():
        with verified(run, (RESULTS,)):
            results = read_json(path)
        known = ("parameters", "weights", "seconds", "device", "seed", "commit")
        facts |= {key: results[key] for key in known if key in results}
        measured = (results.get("valid") or {}).get("metrics", {})
        facts["valid"] = {name: round(entry["value"], 2) for name, entry in measured.items()}
    return facts
