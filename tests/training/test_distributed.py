"""A step of several processes is the step of one, whatever weights a model has and shares."""

import os
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard import recipe as recipes
from regard.data.loader import Loader
from regard.io.tensors import unique_state_dict
from regard.run_checks import distribution_notes
from regard.training.config import TrainingConfig
from regard.training.distributed import ProcessGroup, full_tensor, process_group
from regard.training.loop import PlannedEpoch, Trainer
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


def learned(folder: Path, model: dict[str, Any], group: ProcessGroup, parallel: str) -> dict[str, Tensor]:
    """The weights after three steps in float64 without dropout."""
    keys = toy.recipe(folder, parallel=parallel, accumulate=2, clip=0.5)
    keys["model"] = {**(keys["model"] if "kind" not in model else {}), **model, "dropout": 0.0}
    keys["data"]["filters"] = {"max_length": 100}
    recipe = recipes.load_recipe(keys)
    task = recipe.task.prepare(recipe, None, lambda what, n, of: None)
    torch.manual_seed(1)
    trainer = Trainer(task, task.build_model().double(), recipe.training, 1, folder, torch.device("cpu"), group)

    def epoch(n: int) -> PlannedEpoch:
        return PlannedEpoch(task.view(1, n), 200, 1, n)

    with Loader(epoch, accumulate=2, rank=group.rank, world_size=group.size) as loader:
        for step in islice(loader, 3):
            trainer.step(step)
            trainer.state.step += 1
    return {name: full_tensor(value).clone() for name, value in unique_state_dict(trainer.model).items()}


def work(folder: Path) -> None:
    with process_group(torch.device("cpu")) as group:
        for parallel in ("ddp", "fsdp"):
            for name, model in MODELS.items():
                tensors = learned(folder, model, group, parallel)
                if group.is_main:
                    save_file(tensors, folder / f"{name}-{parallel}.safetensors")


def meet(late: float) -> None:
    """The last one comes late, and all end without a farewell."""
    if os.environ["RANK"] != "0":
        time.sleep(late)
    with process_group(torch.device("cpu")) as group:
        assert group.broadcast(group.rank) == 0
        assert group.all_reduce_max(group.rank) == group.size - 1
        group.barrier()
        os._exit(0)


def test_processes_that_are_started_again_do_not_call_those_that_have_ended(tmp_path: Path) -> None:
    """torchrun keeps its store, and what they left there, over restarts."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    given = {"MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": True}
    for size, late in ((2, 0.0), (2, 0.5), (3, 0.5), (2, 0.5)):
        Processes(size, tmp_path, meet, late, **given).succeed()


@pytest.mark.parametrize(
    "accumulate, size, before, said",
    [
        (1, 2, 2, "2 processes (ddp) for the micro-batch of a step, cut into 2 parts: "),
        (3, 2, 1, "2 processes (ddp), 1 before, for the 3 micro-batches of a step, each cut into 2 parts: "),
        (4, 2, 2, "2 processes (ddp) for the 4 micro-batches of a step: "),
        (4, 1, 8, "1 process, 8 before, for the 4 micro-batches of a step: "),
    ],
)
def test_what_is_said_of_the_processes(accumulate: int, size: int, before: int, said: str) -> None:
    settings = TrainingConfig(accumulate=accumulate)
    same = "it learns from the same examples with any number of processes"
    assert distribution_notes(settings, nn.LayerNorm(2), ProcessGroup(0, size), before) == [said + same]


def test_batch_normalisation_is_not_the_same_and_that_is_said() -> None:
    assert distribution_notes(TrainingConfig(), nn.BatchNorm1d(2), ProcessGroup(), 1) == []
    assert (
        "averages over each process's part"
        in distribution_notes(TrainingConfig(), nn.BatchNorm1d(2), ProcessGroup(0, 2), 2)[1]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("group")
    toy.write_corpus(folder)
    Processes(3, folder / "said", work, folder).succeed()
    return folder


@pytest.mark.parametrize("name", MODELS)
def test_three_processes_learn_what_one_does(folder: Path, name: str) -> None:
    alone = learned(folder, MODELS[name], ProcessGroup(), "ddp")
    for parallel in ("ddp", "fsdp"):
        together = load_file(folder / f"{name}-{parallel}.safetensors")
        assert together.keys() == alone.keys()
        for key, value in alone.items():
            assert float((together[key] - value).abs().max()) <= 1e-10, f"{parallel} {key}"
