"""`regard info`: what this installation has, or what a trained model is and how well it did."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.table import Table

from regard import __version__, config
from regard.console import Console
from regard.errors import RegardError, plural
from regard.io.files import DamagedFile, cache_root, read_json
from regard.io.int8 import is_int8
from regard.io.low_rank import base_of
from regard.io.manifest import SETUP, check_links, find_damage, model_digest, read_manifest, verified
from regard.io.run_folder import RESULTS, WEIGHTS
from regard.io.tensors import tensor_shapes
from regard.language import localise
from regard.recipe import read_recipe
from regard.training.checkpoint import CheckpointManager, read_state


def info(run: Path | None, as_json: bool, tokens: int | None = None, length: int = 128, verify: bool = False) -> None:
    if verify:
        facts = _verify(run)
    else:
        facts = _installation_facts() if run is None else _model_facts(run) | _cost_facts(run, tokens, length)
    if "of" in facts and not as_json:
        facts["step"] = f"{facts['step']:,} / {facts.pop('of'):,}"
    if "task" in facts and not as_json:
        kind, *languages = str(facts["task"]).split(" ")
        facts["task"] = " ".join([localise(kind), *languages])
    print_facts(facts, f"regard {__version__}" if run is None else str(run), as_json)


def print_facts(facts: dict[str, object], title: str, as_json: bool) -> None:
    """A table of facts, or their JSON."""
    if as_json:
        print(json.dumps(facts, indent=1, ensure_ascii=False))
        return
    table = Table(show_header=False, title=localise(title), title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in facts.items():
        if value is None:
            continue
        table.add_row(localise(key), _text(value, _UNITS.get(key, str), localise if key in NAMED else str))
    Console().print(table)


def _size(count: int) -> str:
    """Bytes as a person reads them."""
    size, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while size >= 1024 and len(units) > 1:
        size, units = size / 1024, units[1:]
    return f"{size:,.1f} {units[0]}" if size % 1 else f"{size:,.0f} {units[0]}"


def _time(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return localise(
        f"{seconds:.3g} s" if minutes < 2 else f"{minutes:.0f} minutes" if hours < 2 else f"{hours:.1f} hours"
    )


_UNITS: dict[str, Callable[[Any], str]] = {
    "memory": _size,
    "training memory": _size,
    "bytes a token": _size,
    "size of the weights": _size,
    "seconds a step": _time,
    "seconds of all steps": _time,
}


NAMED = (*_UNITS, "FLOPs a token")  # whose parts have names of ours; those of others are keys and modules


def _text(value: Any, show: Callable[[Any], str] = str, name: Callable[[str], str] = str) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name(key)} {_text(item, show)}" for key, item in value.items() if item is not None)
    if isinstance(value, list):
        return ", ".join(_text(str(item)) for item in value)
    if show is not str:
        return show(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return localise(value) if isinstance(value, str) and " " in value else str(value)


def _cost_facts(run: Path, tokens: int | None, length: int) -> dict[str, object]:
    """Parameters by part, FLOPs and bytes a token, and memory of training at a batch size."""
    from regard.io.run_folder import run_folder_of
    from regard.training import cost

    recipe = read_recipe(run)
    predictor = recipe.task.load_predictor(recipe, run_folder_of(run))
    model, length = predictor.model, min(length, predictor.longest or length)
    facts: dict[str, Any] = {
        "parameters by part": cost.parameters_by_part(model),
        "FLOPs a token": {f"{name}, of {length}": count for name, count in cost.forward_flops(model, length).items()},
        "bytes a token": {"KV cache while decoding": cost.cache_bytes(model, length)},
    }
    memory = {"weights, gradients and optimiser": cost.state_bytes(model, recipe.training)}
    batch = cost.sample_batch(model, length)
    if batch is not None:
        tokens = tokens or recipe.training.tokens_per_batch
        kept = cost.activation_bytes(model.train(), lambda: model(batch, smoothing=0.1)) / length
        facts["bytes a token"]["activations in training"] = round(kept)
        memory[f"a batch of {tokens} tokens"] = round(kept * tokens)
        memory["total"] = sum(memory.values())
    return facts | {"training memory": memory}


def _installation_facts() -> dict[str, object]:
    import platform

    import torch

    from regard.data.catalog import data_folders
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
    checkpoints = CheckpointManager(run)
    folders = checkpoints.all_folders()
    damage = checkpoints.describe_missing([path.name for path in folders[:1]]) if checkpoints.exists() else []
    facts: dict[str, object] = {}
    for folder in (run, *folders):
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
    if (run / WEIGHTS).is_file():
        stored = ["8 bits"] * is_int8(tensor_shapes(run / WEIGHTS))
        stored += [f"a change of {base}"] if (base := base_of(run)) else []
        facts |= {"stored": ", ".join(stored)} if stored else {}
        facts["size of the weights"] = (run / WEIGHTS).stat().st_size
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
