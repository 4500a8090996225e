"""`regard import` and `regard export`: folders in, folders out, and a sentence on stderr about the result."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.api import load_as
from regard.config import nearest
from regard.console import Console
from regard.errors import RegardError
from regard.interop import bert_folder, ct2_folder, gpt2_folder, opus, plain
from regard.interop.checkpoint import Checkpoint
from regard.io.atomic import new_folder
from regard.predict.base import Predictor
from regard.predict.embedding import TextEmbedder
from regard.predict.finetuned import FinetunedPredictor
from regard.predict.generation import TextGenerator
from regard.predict.translation import Translator

FAMILIES: dict[str, Callable[[Checkpoint, Path], Any]] = {
    "marian": opus.read,
    "bert": lambda checkpoint, out: bert_folder.read(checkpoint),
    "gpt2": lambda checkpoint, out: gpt2_folder.read(checkpoint),
}


def import_model(form: str, name: str, out: Path) -> None:
    if form != "hf":
        raise RegardError(f"regard import {form}: there is no such form; write hf")
    with new_folder(out) as folder:
        checkpoint = Checkpoint.find(name)
        if checkpoint.family not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise RegardError(f"{name}: a model of the family {checkpoint.family}; these can be imported: {known}")
        imported = FAMILIES[checkpoint.family](checkpoint, out)
        imported.write(folder)
    count = sum(tensor.numel() for tensor in imported.weights.values())
    _print_note(f"{out}: {count / 1e6:.2f} million parameters, {imported.recipe.task.title}")


def export_model(form: str, run: Path, out: Path, precision: str) -> None:
    if form not in FORMS:
        raise RegardError(f"regard export {form}: there is no such form; {nearest(form, FORMS)}")
    writers = FORMS[form]
    predictor = load_as(tuple(kind for kind, _ in writers), run, "cpu", f"export {form}")
    write = next(write for kind, write in writers if isinstance(predictor, kind))
    with new_folder(out) as folder:
        sentence = write(predictor, run, folder, precision)
    _print_note(f"{out}: {sentence}")


Write = Callable[[Any, Path, Path, str], str]
FORMS: dict[str, list[tuple[type[Predictor], Write]]] = {  # how each kind of predictor is written
    "hf": [
        (Translator, lambda predictor, run, folder, precision: opus.write(predictor, run, folder)),
        (TextGenerator, lambda predictor, run, folder, precision: gpt2_folder.write(predictor, run, folder)),
        (TextEmbedder, lambda predictor, run, folder, precision: bert_folder.write(predictor, run, folder)),
        (FinetunedPredictor, lambda predictor, run, folder, precision: bert_folder.write(predictor, run, folder)),
    ],
    "ct2": [(Translator, ct2_folder.write)],
    "safetensors": [(Predictor, lambda predictor, run, folder, precision: plain.write(predictor, run, folder))],
}


def _print_note(sentence: str) -> None:
    Console(stderr=True).print(sentence, highlight=False, soft_wrap=True)
