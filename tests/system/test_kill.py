"""Kill -9 at random moments, checkpoint writing included: the end is the same bits as without."""

import json
import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import equal

from regard import recipe as recipes
from regard.run import train_recipe
from tests.training import toy


def recipe(folder: Path, steps: int) -> recipes.Recipe:
    """Small enough to be quick, wide enough that writing a checkpoint takes as long as a step."""
    keys: dict[str, Any] = toy.recipe(
        folder,
        steps=steps,
        log_every=1,
        tokens_per_batch=64,
        validation={"every": 7, "lines": 5},
        checkpoints={"every": 1, "keep": 2},
    )
    keys["model"] = {"layers": 3, "size": 128, "inner": 256, "heads": 4, "dropout": 0.1}
    return recipes.load_recipe(keys)


class Runs:
    """Processes that train, each a fork of one that has imported torch: a start then costs no two seconds."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["regard.run", "torch.utils.tensorboard"])

    def start(self, folder: Path, name: str) -> Any:
        process = self.context.Process(target=train_recipe, args=(recipe(folder, self.steps), folder / name, "cpu"))
        process.start()
        return process


def newest(run: Path) -> int:
    return max((int(p.name[5:]) for p in run.glob("checkpoints/step-*")), default=0)


def wait_for_a_checkpoint(process: Any, run: Path) -> None:
    before = newest(run)
    while newest(run) == before and process.is_alive():
        time.sleep(0.002)


@pytest.mark.parametrize("steps, least, wanted", [(60, 6, 1), pytest.param(110, 20, 3, marks=pytest.mark.slow)])
def test_killed_and_resumed_is_the_same_bits(tmp_path: Path, steps: int, least: int, wanted: int) -> None:
    """At `least` so many kills, of which `wanted` fall into the writing of a checkpoint."""
    toy.write_corpus(tmp_path)
    runs, draw = Runs(steps), random.Random(20)
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    process = runs.start(tmp_path, "whole")
    wait_for_a_checkpoint(process, whole)
    begun = time.monotonic()
    process.join()
    pace = (time.monotonic() - begun) / steps
    assert process.exitcode == 0

    kills = inside = 0
    while True:
        process = runs.start(tmp_path, "killed")
        if kills >= least and inside >= wanted:
            break
        if kills < least // 4:  # at any moment of a process's life, its beginning included
            time.sleep(draw.uniform(0, 0.6))
        else:
            wait_for_a_checkpoint(process, killed)
            time.sleep(draw.uniform(0, 4 * pace))
        process.kill()
        process.join()
        assert process.exitcode == -9, "the run ended before it could be killed"
        kills += 1
        inside += any(killed.glob("checkpoints/.step-*"))
    process.join()
    assert process.exitcode == 0

    for name in ("model.safetensors", "last/model.safetensors", "last/optimiser.safetensors"):
        a, b = load_file(whole / name), load_file(killed / name)
        assert a.keys() == b.keys()
        assert all(equal(a[key], b[key]) for key in a), name
    assert not list(killed.glob("checkpoints/.*"))
    assert not list(killed.glob(".model*"))
    logs = [[json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()] for run in (whole, killed)]
    seen = [[(entry["kind"], entry["step"]) for entry in log] for log in logs]
    assert seen[0] == seen[1]
    assert [step for kind, step in seen[1] if kind == "train"] == list(range(1, steps + 1))
    losses = [[entry["loss"] for entry in log if entry["kind"] == "train"] for log in logs]
    assert losses[0] == losses[1]
