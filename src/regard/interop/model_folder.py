"""Model folders as `regard.load` reads them: written from an imported checkpoint, or from a run without its data."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from torch import Tensor, nn

from regard.errors import RegardError
from regard.io import run_folder as folder
from regard.io.int8 import to_int8
from regard.io.low_rank import to_low_rank, write_base
from regard.io.manifest import write_manifest
from regard.io.tensors import read_tensors, unique_state_dict, write_tensors
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


@dataclass(frozen=True)
class Storage:
    """How `regard export safetensors` stores weights."""

    bits: int | None = None  # 8: whole numbers and a scale for each row (`io/int8.py`)
    over: Path | None = None  # a model that the run began with: only the change of it (`io/low_rank.py`)
    rank: int = 8  # of that change

    def __post_init__(self) -> None:
        if self.bits not in (None, 8):
            raise RegardError(f"--bits is {self.bits}; write 8, or leave it out for weights as they are")
        if self.rank < 1:
            raise RegardError(f"--rank is {self.rank}; write 1 or more")


def export_safetensors(loaded: LoadedModel, run: Path, out: Path, storage: Storage) -> str:
    """Weights, config and tokenizer of a run, as a model folder without paths of data; returns a summary."""
    (out / folder.CONFIG).write_text(dump_recipe(without_data(loaded.recipe)), encoding="utf-8")
    home = folder.run_folder_of(run)
    shutil.copytree(home / "tokenizer", out / "tokenizer")
    if (home / "labels.json").is_file():
        shutil.copy(home / "labels.json", out / "labels.json")
    weights = unique_state_dict(loaded.model)
    if storage.over is not None:
        write_base(out, storage.over, weights)
        weights = to_low_rank(weights, read_tensors(storage.over / folder.WEIGHTS), storage.rank)
    write_tensors(out / folder.WEIGHTS, to_int8(weights) if storage.bits else weights)
    write_manifest(out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    stored = ["in 8 bits"] * bool(storage.bits) + [f"as a change of {storage.over}"] * bool(storage.over)
    return ", ".join([f"{len(weights)} tensors", *stored, "with config and tokenizer", f"{size / 1e6:.2f} MB"])


def without_data(recipe: Recipe) -> Recipe:
    """The recipe without files and without the weights that training began from; public sets measure it still."""
    valid, test = ([corpus for corpus in corpora if corpus.set] for corpora in (recipe.data.valid, recipe.data.test))
    data = replace(recipe.data, train=[], valid=valid, test=test, cache=None)
    task = recipe.task
    if isinstance(task, FinetuningConfig):  # freezing is about the weights that training began from
        task = replace(task, frozen=False)
    return replace(recipe, task=task, data=data, training=replace(recipe.training, init=None))
