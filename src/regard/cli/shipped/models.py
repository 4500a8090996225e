"""`regard models list` and `regard models show`: the models that commands know by name. Loads none."""

import json
from collections.abc import Mapping
from pathlib import Path

from regard import config
from regard.api import COMMANDS
from regard.cli.streams import warn
from regard.console import Console
from regard.errors import RegardError
from regard.io.model_card import ModelCard, read_card
from regard.io.models import VARIABLE, find_model, known_models, models_folders
from regard.io.run_folder import CONFIG
from regard.language import localise
from regard.reporting import Json


def list_models(as_json: bool) -> None:
    rows = []
    for name, folder in known_models().items():
        try:
            rows.append(model_facts(name, folder))
        except RegardError as error:
            warn(f"{name}: left out; {error}")
    if as_json:
        print(json.dumps(rows, ensure_ascii=False, indent=1))
        return
    if not rows:
        warn(no_models())
        return
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("name", "what", "command", "size", "terms"):
        table.add_column(localise(name), no_wrap=name in ("name", "command", "size"), overflow="fold")
    for row in rows:
        command = f"regard {row['command']} {row['name']}"
        table.add_row(row["name"], row["title"], command, f"{row['size'] / 1e6:.1f} MB", row["terms"])
    Console().print(table)
    folders = dict.fromkeys(str(Path(row["folder"]).parent) for row in rows)
    print(localise(f"\nThey are in {', '.join(folders)}; `regard models show NAME` prints a model's card."))


def show_model(name: str, as_json: bool) -> None:
    """The card of a model, or its facts as JSON."""
    folder = find_model(name)
    card = read_card(folder) if folder.is_dir() else None
    if not folder.is_dir():
        raise RegardError(f"{name}: there is no such folder; `regard models list` lists the names")
    if as_json:
        print(json.dumps(model_facts(folder.name, folder), ensure_ascii=False, indent=1))
    elif card is None:
        raise RegardError(f"{folder}: this model has no card (README.md); `regard info {name}` says what it is")
    else:
        print(card.text.rstrip("\n"))


def no_models() -> str:
    """Where models were looked for, and how to get one."""
    looked = ", ".join(map(str, models_folders())) or "nowhere: it is no checkout"
    return (
        f"no model is installed under a name (looked in {looked}); install regard-models, name folders in {VARIABLE}, "
        "or train one: regard quickstart"
    )


def model_facts(name: str, folder: Path) -> Json:
    """What is known of a model without loading it."""
    card = read_card(folder) or ModelCard()
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {
        "name": name,
        "title": card.title or _task(folder),
        "command": card.command or COMMANDS.get(_task(folder), _task(folder)),
        "size": size,
        "terms": card.terms,
        "noncommercial": card.noncommercial,
        "examples": list(card.examples),
        "folder": str(folder),
    }


def _task(folder: Path) -> str:
    """The kind of the task, from the recipe."""
    task = config.read_yaml(folder / CONFIG).plain().get("task")
    return str(task.get("kind", "translation") if isinstance(task, Mapping) else task or "translation")
