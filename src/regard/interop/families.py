"""Families of imported checkpoints and formats of exported models: the tables behind `regard import` and `export`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard import api
from regard.config import nearest
from regard.errors import RegardError
from regard.interop.bert import export_bert, import_bert
from regard.interop.checkpoint import Checkpoint
from regard.interop.ct2 import export_ct2
from regard.interop.gpt2 import export_gpt2, import_gpt2
from regard.interop.marian import export_marian, import_marian
from regard.interop.model_folder import ImportedModel, Storage, export_safetensors
from regard.io.atomic import atomic_folder
from regard.io.building import importing_from
from regard.io.files import shown
from regard.io.tensors import check_finite
from regard.predict.base import FinetunedPredictor
from regard.predict.embedding import TextEmbedder
from regard.predict.generation import TextGenerator
from regard.predict.translation import Translator

FAMILIES: dict[str, Callable[[Checkpoint, Path], ImportedModel]] = {  # by model_type of config.json
    "marian": import_marian,
    "bert": import_bert,
    "gpt2": import_gpt2,
}
Export = Callable[[Any, Path, Path], str]  # (loaded model, run, out): a summary
HF_EXPORTS: list[tuple[type, Export]] = [
    (Translator, export_marian),
    (TextGenerator, export_gpt2),
    (TextEmbedder, export_bert),
    (FinetunedPredictor, export_bert),
]
DEFAULT = Storage()
FORMATS = ("hf", "ct2", "safetensors")


def import_checkpoint(name: str | Path, out: Path) -> ImportedModel:
    """Read a Hugging Face checkpoint, a folder or a name on the hub, and write the model folder `out`."""
    with atomic_folder(out) as place:
        checkpoint = Checkpoint.find(str(name))
        if checkpoint.family not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise RegardError(
                f"{name}: a model of the family {shown(checkpoint.family)}; these can be imported: {known}"
            )
        config = checkpoint.folder / "config.json"
        try:
            with importing_from(checkpoint.folder, config):
                imported = FAMILIES[checkpoint.family](checkpoint, out)
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
            raise RegardError(
                f"{config}: this file, or one beside it, has values that no model of the family "
                f"{checkpoint.family} has; --debug shows where"
            ) from error
        for tensor_name, tensor in imported.weights.items():
            check_finite(tensor_name, tensor, checkpoint.folder)
        imported.write(place)
    return imported


def export_run(format: str, run: Path, out: Path, precision: str, storage: Storage = DEFAULT) -> str:
    """Write a trained model in another library's format into the folder `out`; returns a summary."""
    if storage != DEFAULT and format in ("hf", "ct2"):
        other = "--precision int8" if format == "ct2" else "no such option"
        raise RegardError(f"--bits, --over and --rank are for `regard export safetensors`; {format} takes {other}")
    if format not in FORMATS:
        raise RegardError(f"regard export {format}: there is no such form; {nearest(format, FORMATS)}")
    exports: list[tuple[type, Export]] = HF_EXPORTS
    if format == "ct2":
        exports = [(Translator, lambda loaded, run, out: export_ct2(loaded, run, out, precision))]
    elif format == "safetensors":
        exports = [(object, lambda loaded, run, out: export_safetensors(loaded, run, out, storage))]
    loaded: Any = api.load_as(tuple(kind for kind, _ in exports), run, "cpu", f"export {format}")
    export = next(export for kind, export in exports if isinstance(loaded, kind))
    with atomic_folder(out) as place:
        return export(loaded, run, place)
