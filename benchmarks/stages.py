"""Trainings that build on each other, each a process of its own: what `elmo.py` and `ulmfit.py` share.

Where seqeval is not installed, entities are counted by `finetuning.fallback`.
"""

import regard  # noqa: F401, I001  (before torch: it settles how OpenMP's threads wait)
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common import arguments, hardware, write_json


@dataclass
class Run:
    """One training: a shipped recipe with some of its keys changed, in a folder of its own."""

    recipe: str
    out: Path
    overrides: list[str] = field(default_factory=list)
    after: tuple["Run", ...] = ()  # what must be trained before
    process: subprocess.Popen[bytes] | None = None

    @property
    def results(self) -> dict[str, Any]:
        return json.loads((self.out / "results.json").read_text(encoding="utf-8"))

    @property
    def done(self) -> bool:
        return self.process is not None and self.process.poll() == 0

    def start(self) -> None:
        command = [sys.executable, __file__, self.recipe, str(self.out), *self.overrides]
        log = self.out.with_suffix(".log").open("wb")
        self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def train_all(runs: list[Run], most: int) -> None:
    """All of them, at most so many at a time, each when what it needs is there."""
    began, waiting, going = time.monotonic(), list(runs), list[Run]()
    try:
        while waiting or going:
            for run in [run for run in waiting if all(other.done for other in run.after)]:
                if len(going) < most:
                    run.out.parent.mkdir(parents=True, exist_ok=True)
                    run.start()
                    waiting.remove(run)
                    going.append(run)
            for run in [run for run in going if run.process and run.process.poll() is not None]:
                going.remove(run)
                if not run.done:
                    sys.exit(f"{run.out}: failed\n{run.out.with_suffix('.log').read_text(errors='replace')[-3000:]}")
                print(f"{time.monotonic() - began:6.0f} s  {run.out.name} is trained", flush=True)
            time.sleep(0.2)
    finally:
        for run in going:
            if run.process and run.process.poll() is None:
                run.process.kill()


def table(arms: dict[str, list[Run]], metric: str) -> dict[str, Any]:
    """Every arm's figures by seed, their mean and spread, and how far it is from the first."""
    found: dict[str, Any] = {}
    for name, runs in arms.items():
        values = [run.results["valid"]["metrics"][metric]["value"] for run in runs]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        found[name] = {"values": values, "mean": statistics.mean(values), "stdev": spread}
    base = next(iter(found.values()))["mean"]
    for name, one in found.items():
        shown = "  ".join(f"{value:6.2f}" for value in one["values"])
        print(f"{name:40} {metric} {shown}   {one['mean']:6.2f} ± {one['stdev']:.2f}   {one['mean'] - base:+.2f}")
    return found


def options(about: str | None) -> argparse.Namespace:
    parser = arguments(about)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--parallel", type=int, default=10, help="trainings at a time")
    parser.add_argument("--folder", type=Path, required=True, help="for the runs; those that are finished are kept")
    parser.add_argument("--set", nargs="+", default=[], help="keys to change in all recipes, as training.steps=100")
    return parser.parse_args()


def write(path: Path | None, found: dict[str, Any]) -> None:
    import torch

    write_json(path, {"device": hardware(), "torch": torch.__version__, **found})


def child(recipe: str, out: str, *overrides: str) -> None:
    import torch
    from finetuning import fallback

    from regard import recipe as recipes
    from regard.run import train_recipe
    from regard.tasks.tag import TagConfig

    try:
        import seqeval  # noqa: F401
    except ImportError:
        TagConfig.required_packages = ()
        TagConfig.measure = lambda self, examples, said, reading: {  # type: ignore[method-assign]
            "f1": {"value": fallback(examples, said)["f1"], "signature": "entities as conlleval"}
        }
    given = list(overrides) if torch.cuda.is_available() else [*overrides, "training.precision=float32"]
    train_recipe(recipes.load_recipe(recipe, given), out)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    child(*sys.argv[1:])
