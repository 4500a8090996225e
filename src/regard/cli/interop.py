"""`regard import` and `regard export`: folders in, folders out, and a sentence on stderr about the result."""

from pathlib import Path

from regard.console import Console
from regard.errors import RegardError
from regard.interop.families import DEFAULT, export_run, import_checkpoint
from regard.interop.model_folder import Storage


def import_model(form: str, name: str, out: Path) -> None:
    if form != "hf":
        raise RegardError(f"regard import {form}: there is no such form; write hf")
    imported = import_checkpoint(name, out)
    count = sum(tensor.numel() for tensor in imported.weights.values())
    _print_note(f"{out}: {count / 1e6:.2f} million parameters, {imported.recipe.task.title}")


def export_model(form: str, run: Path, out: Path, precision: str, storage: Storage = DEFAULT) -> None:
    _print_note(f"{out}: {export_run(form, run, out, precision, storage)}")


def _print_note(sentence: str) -> None:
    Console(stderr=True).print(sentence, highlight=False, soft_wrap=True)
