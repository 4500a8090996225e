"""The commands `import` and `export`: folders in, folders out, and a sentence on stderr about what was made."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard import api
from regard.config import nearest
from regard.console import Console
from regard.errors import RegardError
from regard.examples.codec import Reader
from regard.interop import bert_folder, ct2_folder, gpt2_folder, opus, plain
from regard.interop.checkpoint import Checkpoint
from regard.io.atomic import atomic_folder
from regard.predict.embedding import Embedder
from regard.predict.generation import Writer
from regard.predict.translation import Translator

FAMILIES: dict[str, Callable[[Checkpoint, Path], Any]] = {
    "marian": opus.read,
    "bert": lambda checkpoint, out: bert_folder.read(checkpoint),
    "gpt2": lambda checkpoint, out: gpt2_folder.read(checkpoint),
}


def bring_in(kind: str, name: str, out: Path) -> None:
    if kind != "hf":
        raise RegardError(f"regard import {kind}: there is no such form; write hf")
    with atomic_folder(out) as place:
        checkpoint = Checkpoint.find(name)
        if checkpoint.family not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise RegardError(f"{name}: a model of the family {checkpoint.family}; these can be imported: {known}")
        made = FAMILIES[checkpoint.family](checkpoint, out)
        made.write(place)
    count = sum(tensor.numel() for tensor in made.weights.values())
    _say(f"{out}: {count / 1e6:.2f} million parameters, {made.recipe.task.title}")


def send_out(kind: str, run: Path, out: Path, precision: str) -> None:
    if kind not in FORMS:
        raise RegardError(f"regard export {kind}: there is no such form; {nearest(kind, FORMS)}")
    forms = FORMS[kind]
    made: Any = api.load_as(tuple(served for served, _ in forms), run, "cpu", f"export {kind}")
    write = next(write for served, write in forms if isinstance(made, served))
    with atomic_folder(out) as place:
        said = write(made, run, place, precision)
    _say(f"{out}: {said}")


Write = Callable[[Any, Path, Path, str], str]
FORMS: dict[str, list[tuple[type, Write]]] = {  # what is written for which kind of model
    "hf": [
        (Translator, lambda made, run, place, precision: opus.write(made, run, place)),
        (Writer, lambda made, run, place, precision: gpt2_folder.write(made, run, place)),
        (Embedder, lambda made, run, place, precision: bert_folder.write(made, run, place)),
        (Reader, lambda made, run, place, precision: bert_folder.write(made, run, place)),
    ],
    "ct2": [(Translator, ct2_folder.write)],
    "safetensors": [(object, lambda made, run, place, precision: plain.write(made, run, place))],
}


def _say(sentence: str) -> None:
    Console(stderr=True).print(sentence, highlight=False, soft_wrap=True)
