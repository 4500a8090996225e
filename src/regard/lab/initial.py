"""First weights of paired arms: those of the first arm, by name, wherever names and shapes agree.

They are a model folder that `training.init` names, so `regard train` needs to know nothing of it.
"""

from dataclasses import replace
from pathlib import Path

import torch

from regard.io.atomic import atomic_write
from regard.io.manifest import write_manifest
from regard.io.run_folder import CONFIG, WEIGHTS
from regard.io.tensors import unique_state_dict, write_tensors
from regard.lab.controls import prepare
from regard.recipe import Recipe, dump_recipe


def write_initial_weights(recipe: Recipe, base: Recipe, seeds: list[int], folders: list[Path]) -> int:
    """For each seed a folder with the arm's first weights; how many tensors begin as the first arm's."""
    todo = [(seed, folder) for seed, folder in zip(seeds, folders, strict=True) if not (folder / WEIGHTS).exists()]
    if not todo:
        return 0
    task, shared = prepare(recipe), 0
    first = task if recipe == base else prepare(base)
    for seed, folder in todo:
        folder.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(seed)
        theirs = unique_state_dict(first.build_model())
        torch.manual_seed(seed)
        model = task.build_model()
        shared = 0
        with torch.no_grad():
            for name, tensor in unique_state_dict(model).items():
                if name in theirs and theirs[name].shape == tensor.shape:
                    tensor.copy_(theirs[name])
                    shared += 1
        task.save(folder)
        with atomic_write(folder / CONFIG) as file:
            file.write(dump_recipe(replace(recipe, seed=seed)))
        write_tensors(folder / WEIGHTS, unique_state_dict(model))
        write_manifest(folder)
    return shared
