"""Writes tests/fixtures/runs: what interrupted runs of `toy_runs` leave, and the weights that they should end with.

    PYTHONPATH=src python tools/write_old_runs.py [NAME ...]

Most runs are killed when a checkpoint has appeared; some are sent SIGINT there, and stop a step later. They are written
once, by the code of their time, and are not to be written again when a test fails: later code must read them.
"""

import json
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from toy_runs import RUNS, machine

import regard

ROOT = Path(__file__).parent.parent
FIXTURES = ROOT / "tests" / "fixtures" / "runs"
FOLDER = "$FOLDER"  # in config.yaml, for the folder that a fixture is copied to: a run names its data by whole paths
INTERRUPTED = ("conv", "lm", "chat")  # by SIGINT: two checkpoints are left, so only what is small
STOP = 10  # the checkpoint at which a run is interrupted
NEEDED = ("config.yaml", "tokenizer", "labels.json", "checkpoints", "last", "log.jsonl")
NEEDED_TRAINED = ("config.yaml", "tokenizer", "labels.json", "model.safetensors")


def train(folder: Path, name: str, out: str, number: int | None = None) -> None:
    """Train in a process of its own; with a `number`, it is sent that signal when its checkpoint has appeared."""
    process = multiprocessing.get_context("fork").Process(target=_train, args=(folder, name, out, number))
    process.start()
    process.join()
    expected = 0 if number in (None, signal.SIGINT) else -number
    assert process.exitcode == expected, f"{folder.name}: {name} ended with {process.exitcode}"


def _train(folder: Path, name: str, out: str, number: int | None) -> None:
    os.chdir(folder)
    replace = os.replace

    def replaced(source: Any, target: Any, **options: Any) -> None:
        replace(source, target, **options)
        if Path(target).name == "last" and os.readlink(target).endswith(f"step-{STOP}"):
            os.kill(os.getpid(), number)

    if number is not None:
        os.replace = replaced  # the link `last` is what a checkpoint appears by
    outcome = regard.train(f"{name}.yaml", out=out, device="cpu")
    assert outcome.finished == (number is None)


def write(name: str, work: Path, number: int) -> None:
    folder, fixture = work / name, FIXTURES / name
    RUNS[name].prepare(folder)
    for origin in RUNS[name].origin:
        train(folder, origin, origin)
    train(folder, "recipe", "run", number)
    train(folder, "recipe", "whole")
    for trained in (*RUNS[name].origin, "run"):
        needed = NEEDED if trained == "run" else NEEDED_TRAINED
        for path in (folder / trained).iterdir():
            if path.name not in needed:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        config = folder / trained / "config.yaml"
        config.write_text(config.read_text(encoding="utf-8").replace(str(folder), FOLDER), encoding="utf-8")
    (folder / "whole" / "model.safetensors").rename(folder / "final.safetensors")
    shutil.rmtree(folder / "whole")
    shutil.rmtree(fixture, ignore_errors=True)
    shutil.copytree(folder, fixture, symlinks=True)


def main() -> None:
    torch.set_num_threads(1)
    names = sys.argv[1:] or list(RUNS)
    with tempfile.TemporaryDirectory() as work:
        os.environ["REGARD_CACHE"] = f"{work}/cache"
        for name in names:
            write(name, Path(work), signal.SIGINT if name in INTERRUPTED else signal.SIGKILL)
            size = sum(path.stat().st_size for path in (FIXTURES / name).rglob("*") if path.is_file())
            print(f"{name}: {size / 1000:.0f} KB")
    (FIXTURES / "machine.json").write_text(json.dumps(machine(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
