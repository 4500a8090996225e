"""A model as safetensors: weights, config and tokenizer, and nothing of the run that made it."""

import shutil
from dataclasses import replace
from pathlib import Path

from regard import config, folder
from regard.tasks.translator import Translator
from regard.training.weights import weights_of, write_tensors


def write(translator: Translator, run: Path, out: Path) -> str:
    """`regard.load` reads the folder. Where the data lay, and what training began from, stays behind."""
    recipe = translator.recipe
    data = replace(recipe.data, train=[], valid=[], test=[], cache=None)
    bare = replace(recipe, data=data, training=replace(recipe.training, init=None))
    (out / folder.CONFIG).write_text(config.dump(bare), encoding="utf-8")
    shutil.copytree(folder.home_of(run) / "tokenizer", out / "tokenizer")
    weights = weights_of(translator.model)
    write_tensors(out / folder.WEIGHTS, weights)
    return f"{len(weights)} tensors, with config and tokenizer"
