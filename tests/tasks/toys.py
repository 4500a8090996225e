"""Tiny BERTs and recipes for the tasks that put a head on one: they learn toy data in seconds."""

from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from regard import recipe as recipes
from regard.cli.main import app
from regard.run import TrainingResult, train_recipe

MODEL = {
    "kind": "bert",
    "layers": 1,
    "size": 32,
    "inner": 64,
    "heads": 2,
    "dropout": 0.0,
    "position": {"kind": "learned", "length": 64},
}


def recipe(folder: Path, task: dict[str, Any], files: tuple[str, str], steps: int = 60, **keys: Any) -> dict[str, Any]:
    training = {
        "steps": steps,
        "schedule": {"kind": "linear", "peak": 5e-3, "warmup": 5},
        "validation": {"every": steps},
        "log_every": steps,
        **keys.pop("training", {}),
    }
    made = {
        "task": {"length": 32, **task},
        "data": {"train": str(folder / files[0]), "valid": str(folder / files[1]), "cache": str(folder / "cache")},
        "text": {"kind": "word"},
        "model": MODEL,
        "training": training,
    }
    return made | keys


def trained(made: dict[str, Any], run: Path) -> TrainingResult:
    return train_recipe(recipes.load_recipe(made), run, "cpu")


def command(*arguments: Any, stdin: str = "") -> str:
    """What a command prints, without another process; a mistake is raised."""
    found = CliRunner().invoke(app, [*map(str, arguments), "--device", "cpu"], input=stdin.encode())
    if found.exception:
        raise found.exception
    return found.stdout


def value(outcome: TrainingResult, metric: str) -> float:
    return float(outcome.results["valid"]["metrics"][metric]["value"])
