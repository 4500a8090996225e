"""A model as safetensors: weights, config and tokenizer, and nothing of the run that made it."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.io import run_folder as folder
from regard.io.tensors import unique_state_dict, write_tensors
from regard.recipe import Recipe, dump_recipe


def write(made: Any, run: Path, out: Path) -> str:
    """`regard.load` reads the folder. Where the data lay, and what training began from, stays behind."""
    (out / folder.CONFIG).write_text(dump_recipe(bare(made.recipe)), encoding="utf-8")
    home = folder.run_folder_of(run)
    shutil.copytree(home / "tokenizer", out / "tokenizer")
    if (home / "labels.json").is_file():
        shutil.copy(home / "labels.json", out / "labels.json")
    weights = unique_state_dict(made.model)
    write_tensors(out / folder.WEIGHTS, weights)
    return f"{len(weights)} tensors, with config and tokenizer"


def bare(recipe: Recipe) -> Recipe:
    data = replace(recipe.data, train=[], valid=[], test=[], cache=None)
    task: Any = recipe.task
    if getattr(task, "frozen", False):  # said of learning, and of what it began from
        task = replace(task, frozen=False)
    return replace(recipe, task=task, data=data, training=replace(recipe.training, init=None))
