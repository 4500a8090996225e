"""Model folders as `regard.load` reads them: written from an imported checkpoint, or from a run without its data."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from torch import Tensor, nn

from regard.io import run_folder as folder
from regard.io.int8 import to_int8
from regard.io.manifest import write_manifest
from regard.io.tensors import unique_state_dict, write_tensors
from regard.recipe import Recipe, dump_recipe
from regard.tasks.finetuning import FinetuningConfig


@dataclass(frozen=True)
class ImportedModel:
    """A checkpoint of another library as recipe and weights; `save_tokenizer` writes its vocabulary into a folder."""

    recipe: Recipe
    weights: dict[str, Tensor] = field(repr=False)
    save_tokenizer: Callable[[Path], None]

    def write(self, out: Path) -> None:
        self.save_tokenizer(out)
        (out / folder.CONFIG).write_text(dump_recipe(self.recipe), encoding="utf-8")
        write_tensors(out / folder.WEIGHTS, self.weights)
        write_manifest(out)


class LoadedModel(Protocol):
    """What `regard.load` returns, of any task."""

    recipe: Recipe

    @property
    def model(self) -> nn.Module: ...


def export_safetensors(loaded: LoadedModel, run: Path, out: Path, bits: int | None = None) -> str:
    """Weights, config and tokenizer of a run, as a model folder without paths of data; returns a summary.

    `bits`: 8 stores the weights in 8 bits (`io/int8.py`).
    """
    (out / folder.CONFIG).write_text(dump_recipe(without_data(loaded.recipe)), encoding="utf-8")
    home = folder.run_folder_of(run)
    shutil.copytree(home / "tokenizer", out / "tokenizer")
    if (home / "labels.json").is_file():
        shutil.copy(home / "labels.json", out / "labels.json")
    weights = unique_state_dict(loaded.model)
    write_tensors(out / folder.WEIGHTS, to_int8(weights) if bits == 8 else weights)
    write_manifest(out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    stored = f" in 8 bits, {size / 1e6:.2f} MB" if bits == 8 else ""
    return f"{len(weights)} tensors{stored}, with config and tokenizer"


def without_data(recipe: Recipe) -> Recipe:
    """The recipe without its corpora and without the weights that training began from."""
    data = replace(recipe.data, train=[], valid=[], test=[], cache=None)
    task = recipe.task
    if isinstance(task, FinetuningConfig):  # freezing is about the weights that training began from
        task = replace(task, frozen=False)
    return replace(recipe, task=task, data=data, training=replace(recipe.training, init=None))
