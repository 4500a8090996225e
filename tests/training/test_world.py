"""A step of several processes is the step of one, whatever weights a model has and shares."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from regard import recipe as recipes
from regard.data.loader import Loader
from regard.training.loop import Epoch, Trainer
from regard.training.weights import weights_of
from regard.training.world import World, launched, whole
from tests.processes import Processes
from tests.training import toy

# Weights that layers share, that have fewer rows than there are processes, or that stand in no layer.
MODELS: dict[str, dict[str, Any]] = {
    "apart": {"share": "none"},
    "tied": {"share": "target", "layers": 2},
    "relative": {"position": "relative", "layers": 2},
    "t5": {"position": "t5"},
    "learned": {"position": {"kind": "learned", "length": 200}},
    "linformer": {
        "attention": {"encoder": {"compress": {"kind": "linformer", "length": 200, "size": 4, "sharing": "layers"}}},
        "layers": 2,
    },
    "additive": {"attention": {"score": "additive"}},  # a vector for each head, of one row
    "local_p": {"attention": {"cross": {"pattern": "local_p(2)"}}},
    "rnn": {"kind": "rnn", "size": 8},
    "conv": {"kind": "conv", "size": 8, "layers": 1},
    "bytenet": {"kind": "bytenet", "size": 8},
}


def learned(folder: Path, model: dict[str, Any], world: World, parallel: str) -> dict[str, Tensor]:
    """The weights after three steps in float64 without dropout."""
    keys = toy.recipe(folder, parallel=parallel, accumulate=2, clip=0.5)
    keys["model"] = {**(keys["model"] if "kind" not in model else {}), **model, "dropout": 0.0}
    keys["data"]["filters"] = {"max_length": 100}
    recipe = recipes.load(keys)
    task = recipe.task.prepare(recipe, None, lambda what, n, of: None)
    torch.manual_seed(1)
    trainer = Trainer(task, task.build_model().double(), recipe.training, 1, folder, torch.device("cpu"), world)

    def epoch(n: int) -> Epoch:
        return Epoch(task.view(1, n), 200, 1, n)

    with Loader(epoch, group=2, rank=world.rank, world=world.size) as loader:
        for step in islice(loader, 3):
            trainer.step(step)
            trainer.progress.step += 1
    return {name: whole(value).clone() for name, value in weights_of(trainer.model).items()}


def work(folder: Path) -> None:
    with launched(torch.device("cpu")) as world:
        for parallel in ("ddp", "fsdp"):
            for name, model in MODELS.items():
                tensors = learned(folder, model, world, parallel)
                if world.main:
                    save_file(tensors, folder / f"{name}-{parallel}.safetensors")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    toy.write_corpus(folder)
    Processes(3, folder / "said", work, folder).succeed()
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_three_processes_learn_what_one_does(folder: Path, name: str) -> None:
    alone = learned(folder, MODELS[name], World(), "ddp")
    for parallel in ("ddp", "fsdp"):
        together = load_file(folder / f"{name}-{parallel}.safetensors")
        assert together.keys() == alone.keys()
        for key, value in alone.items():
            torch.testing.assert_close(together[key], value, rtol=0, atol=1e-10, msg=lambda m: f"{parallel} {key}: {m}")
