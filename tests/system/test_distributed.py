"""Two and three processes on a CPU: they learn what one learns, survive what kills one of them, and never hang."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import yaml
from safetensors.torch import load_file

from regard.api import load
from regard.cli import main as cli
from regard.cli.train import average
from regard.errors import RegardError
from regard.io.tensors import read_sharded, unique_state_dict
from regard.tasks.translation import TranslationTask
from regard.training.loop import Trainer
from tests.processes import Processes
from tests.training import toy

STEPS = 20
PARALLEL = ("ddp", "fsdp")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Micro-batches of a few rows, some fewer than processes; the last step of an epoch has fewer of them."""
    folder = tmp_path_factory.mktemp("distributed")
    toy.write_corpus(folder, train=90)
    keys = toy.recipe(
        folder,
        steps=STEPS,
        tokens_per_batch=16,
        accumulate=4,
        clip=0.5,
        ema=0.7,
        validation={"every": 10, "lines": 4},
        checkpoints={"every": 5, "keep": 3},
    )
    keys["model"]["dropout"] = 0.0
    (folder / "recipe.yaml").write_text(yaml.safe_dump(keys), encoding="utf-8")
    return folder


def train(folder: Path, name: str, overrides: list[str], fault: dict[str, Any]) -> None:
    """`regard train` in float64, writing down the examples of every step; `fault` happens to one process, once."""
    build, validate, step = TranslationTask.build_model, TranslationTask.validate, Trainer.step

    def watched(self: Trainer, given: Any) -> Any:
        number, rank = self.state.step + 1, self.group.rank
        rows = [row for batch in given.batches[: len(given.batches) - given.dummies] for row in batch.rows]
        place = folder / "examples" / name
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number}-{rank}-of-{self.group.size}").write_text(json.dumps([given.epoch, rows]))
        if (rank, number) == fault.get("at") and not (place / "happened").exists():
            (place / "happened").touch()
            if fault["what"] == "memory":
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
            os.kill(os.getpid(), fault["what"])
        return step(self, given)

    def interrupted(self: TranslationTask, model: Any, device: Any, progress: Any) -> dict[str, float]:
        if fault.get("what") == "validation" and not (folder / name / "interrupted").exists():
            (folder / name / "interrupted").touch()
            os.kill(os.getpid(), signal.SIGINT)
        return validate(self, model, device, progress)

    TranslationTask.validate = interrupted  # type: ignore[method-assign]
    TranslationTask.build_model = lambda self: build(self).double()  # type: ignore[method-assign]
    Trainer.step = watched  # type: ignore[method-assign]
    sys.argv = ["regard", "train", str(folder / "recipe.yaml"), *overrides, "--out", str(folder / name)]
    sys.argv += ["--device", "cpu", "--json"]
    cli.main()


def run(folder: Path, name: str, size: int, parallel: str = "ddp", **fault: Any) -> Processes:
    return Processes(size, folder / "said" / name, train, folder, name, [f"training.parallel={parallel}"], fault)


def examples(folder: Path, name: str, size: int) -> list[tuple[int, list[int]]]:
    """Step by step: the epoch, and what all processes learned from, sorted."""
    found = []
    for number in range(1, STEPS + 1):
        said = [json.loads(p.read_text()) for p in (folder / "examples" / name).glob(f"{number}-*-of-{size}")]
        found.append((said[0][0], sorted(row for _, rows in said for row in rows)) if said else (-1, []))
    return found


def weights(run: Path) -> dict[str, torch.Tensor]:
    return read_sharded(run / "last", "model")


def alike(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], within: float) -> None:
    assert a.keys() == b.keys()
    assert all(value.dtype == torch.float64 for value in a.values())
    assert max(float((a[key] - b[key]).abs().max()) for key in a) <= within


@pytest.fixture(scope="module")
def alone(folder: Path) -> Path:
    run(folder, "alone", 1).succeed()
    return folder / "alone"


@pytest.fixture(scope="module")
def together(folder: Path, alone: Path) -> dict[tuple[int, str], Processes]:
    """The same recipe in two and three processes, in both ways."""
    return {(n, way): run(folder, f"{way}-{n}", n, way).succeed() for n in (2, 3) for way in PARALLEL}


def test_an_epoch_has_every_example_once(folder: Path, alone: Path) -> None:
    steps = examples(folder, "alone", 1)
    first = [row for epoch, rows in steps if epoch == 0 for row in rows]
    assert len(first) == len(set(first)) > 50
    assert steps[-1][0] >= 2  # some epochs, so their short last steps
    assert Counter(first) == Counter(row for epoch, rows in steps if epoch == 1 for row in rows)


@pytest.mark.parametrize("way", PARALLEL)
@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_learn_what_one_does(
    folder: Path, alone: Path, together: dict[tuple[int, str], Processes], size: int, way: str
) -> None:
    name = f"{way}-{size}"
    assert examples(folder, name, size) == examples(folder, "alone", 1)
    alike(weights(alone), weights(folder / name), 1e-10)
    log = [json.loads(line) for line in (folder / name / "log.jsonl").read_text().splitlines()]
    assert [e["step"] for e in log if e["kind"] == "valid"] == [10, 20]
    results = json.loads(together[size, way].out)  # printed once
    assert (results["finished"], results["processes"]) == (True, size)
    said = together[size, way].err
    assert said.count("done: ") == 1
    cut = ", each cut into 3 parts" if size == 3 else ""
    assert f"{size} processes ({way}) for the 4 micro-batches of a step{cut}: it learns from the same examples" in said


@pytest.mark.parametrize("way", [pytest.param("ddp", marks=pytest.mark.slow), "fsdp"])
def test_stopped_with_two_goes_on_with_one_and_with_three(folder: Path, alone: Path, way: str) -> None:
    """A signal to one process stops all at one step; then other processes, in the other way, do the rest."""
    name = f"stopped-{way}"
    stopped = run(folder, name, 2, way, at=(1, 8), what=signal.SIGTERM)
    assert stopped.codes() == [143, 143]
    assert stopped.err.count("SIGTERM at step 8; saved. To go on: the same command") == 1
    assert (folder / name / "last").resolve().name == "stop-8"
    parts = {path.name for path in (folder / name / "last").glob("model*")}
    whole = {"model.safetensors"}
    assert parts == (whole if way == "ddp" else {f"model-0000{n}-of-00002.safetensors" for n in (1, 2)})
    for size in (1, 3):
        shutil.copytree(folder / name, folder / f"{name}-{size}", symlinks=True)
        going = run(folder, f"{name}-{size}", size, PARALLEL[way == "ddp"]).succeed()
        now = f"{size} processes ({PARALLEL[way == 'ddp']})" if size > 1 else "1 process"
        assert f"{now}, 2 before, for the 4 micro-batches of a step" in going.err
        steps = examples(folder, name, 2)[:8] + examples(folder, f"{name}-{size}", size)[8:]
        assert steps == examples(folder, "alone", 1)
        alike(weights(alone), weights(folder / f"{name}-{size}"), 1e-10)


def test_a_checkpoint_in_parts_is_a_model(folder: Path, alone: Path, together: Any, tmp_path: Path) -> None:
    run = folder / "fsdp-3"
    assert len(list((run / "last").glob("model-*-of-00003.safetensors"))) == 3
    loaded = load(run / "last", "cpu")
    assert loaded.translate(["w1 w2"]) == load(alone / "last", "cpu").translate(["w1 w2"])
    for name, value in unique_state_dict(loaded.model).items():
        torch.testing.assert_close(value, weights(alone)[name].float(), rtol=1e-5, atol=1e-6)
    average([run], tmp_path / "average", last=2)
    mean = load_file(tmp_path / "average" / "model.safetensors")
    parts = [read_sharded(run / "checkpoints" / f"step-{n}", "model") for n in (15, 20)]
    alike(mean, {name: (parts[0][name] + parts[1][name]) / 2 for name in mean}, 1e-15)
    shutil.copytree(run / "last", tmp_path / "torn")
    (tmp_path / "torn" / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(RegardError, match="torn: 2 of 3 files of model are there"):
        read_sharded(tmp_path / "torn", "model")


@pytest.mark.parametrize("way", [pytest.param("ddp", marks=pytest.mark.slow), "fsdp"])
def test_a_killed_process_ends_all_and_the_same_command_goes_on(folder: Path, together: Any, way: str) -> None:
    name = f"killed-{way}"
    killed = run(folder, name, 2, way, at=(1, 13), what=signal.SIGKILL)
    assert killed.codes() == [2, -9]
    assert "regard: process 0 of 2 lost the others (" in killed.err
    assert "Traceback" not in killed.err
    assert "going on from step 10" in run(folder, name, 2, way).succeed().err
    alike(weights(folder / f"{way}-2"), weights(folder / name), 0.0)


def test_a_signal_inside_a_validation_stops_all_and_it_is_owed(folder: Path, together: Any) -> None:
    stopped = run(folder, "interrupted", 2, "fsdp", what="validation")
    assert stopped.codes() == [130, 130]
    assert stopped.err.count("SIGINT at step 10; saved") == 1
    assert json.loads((folder / "interrupted" / "last" / "state.json").read_text())["unmeasured"] is True
    run(folder, "interrupted", 2, "fsdp").succeed()
    alike(weights(folder / "fsdp-2"), weights(folder / "interrupted"), 0.0)
    lines = [(folder / name / "log.jsonl").read_text().splitlines() for name in ("fsdp-2", "interrupted")]
    valid = [[entry for entry in map(json.loads, log) if entry["kind"] == "valid"] for log in lines]
    assert valid[0] == valid[1]


def test_a_mistake_is_said_once(folder: Path, together: Any) -> None:
    another = Processes(2, folder / "said" / "another", train, folder, "ddp-2", ["training.clip=0.1"], {})
    assert another.codes() == [2, 2]
    assert another.err.count("regard: ") == 1
    assert "holds a run of another recipe (training.clip: 0.5 → 0.1)" in another.err


@pytest.mark.parametrize("way", [pytest.param("ddp", marks=pytest.mark.slow), "fsdp"])
def test_out_of_memory_in_one_process_ends_the_run_with_a_sentence(folder: Path, way: str) -> None:
    ended = run(folder, f"memory-{way}", 2, way, at=(1, 3), what="memory")
    assert ended.codes() == [2, 2]
    assert "regard: process 1 of 2 ran out of memory; lower training.tokens_per_batch" in ended.err
    assert "Traceback" not in ended.err


def elsewhere(folder: Path) -> None:
    """As on machines that share no folder."""
    here = folder / f"machine-{os.environ['RANK']}"
    here.mkdir()
    os.chdir(here)
    sys.argv = ["regard", "train", str(folder / "recipe.yaml"), "--out", "run", "--device", "cpu"]
    cli.main()


def test_a_run_folder_that_is_not_shared(folder: Path) -> None:
    ended = Processes(2, folder / "said" / "elsewhere", elsewhere, folder)
    assert ended.codes() == [2, 2]
    path = folder / "machine-1" / "run" / "config.yaml"
    assert "regard: process 1 of 2, on " in ended.err
    assert f" does not see {path}, which the first has written; give an --out that all machines share" in ended.err


def test_kill_9_under_torchrun_restarts_from_the_last_checkpoint(folder: Path) -> None:
    """As a user starts it, in float32; the end has the same bits as without the kill."""
    long = ["training.steps=80", "training.log_every=1", "training.checkpoints.every=2"]
    command = [str(folder / "recipe.yaml"), *long, "--device", "cpu", "--out"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = subprocess.Popen(
        [*torchrun, "--max-restarts", "1", "-m", "regard", "train", *command, str(folder / "elastic")],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = folder / "elastic" / "log.jsonl"
    while not log.exists() or log.read_text().count("train") < 9:
        assert process.poll() is None
        time.sleep(0.01)
    workers = psutil.Process(process.pid).children()
    next(worker for worker in workers if worker.environ()["RANK"] == "1").kill()
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    assert "going on from step" in said
    Processes(2, folder / "said" / "calm", plainly, [*command, str(folder / "calm")]).succeed()
    for file in ("last/model.safetensors", "last/optimiser.safetensors", "model.safetensors"):
        a, b = load_file(folder / "elastic" / file), load_file(folder / "calm" / file)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a), file


def plainly(arguments: list[str]) -> None:
    sys.argv = ["regard", "train", *arguments]
    cli.main()
