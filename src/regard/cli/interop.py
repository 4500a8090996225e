"""The commands `import` and `export`: folders in, folders out, and a sentence on stderr about what was made."""

from pathlib import Path

from regard.console import Console
from regard.errors import RegardError
from regard.interop.families import export_run, import_checkpoint


def bring_in(kind: str, name: str, out: Path) -> None:
    if kind != "hf":
        raise RegardError(f"regard import {kind}: there is no such form; write hf")
    imported = import_checkpoint(name, out)
    count = sum(tensor.numel() for tensor in imported.weights.values())
    _print(f"{out}: {count / 1e6:.2f} million parameters, {imported.recipe.task.title}")


def send_out(kind: str, run: Path, out: Path, precision: str) -> None:
    _print(f"{out}: {export_run(kind, run, out, precision)}")


def _print(sentence: str) -> None:
    Console(stderr=True).print(sentence, highlight=False, soft_wrap=True)
