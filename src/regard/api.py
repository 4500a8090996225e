"""The public API: `regard.train` trains what a recipe says, `regard.load` opens what was trained."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard.errors import RegardError
from regard.io.run_folder import WEIGHTS, home_of

if TYPE_CHECKING:
    from regard.run import Outcome

T = TypeVar("T")
Opener = Callable[[Path, str], Any]  # (run, device): a trained model, in an engine
COMMANDS = {  # by task, what a trained model is asked with, where that has another name
    "translation": "translate",
    "lm": "generate",
    "pretraining": "fill",
    "embedding": "embed",
    "regress": "classify",
}


def train(
    recipe: str | Path | dict[str, Any],
    out: str | Path | None = None,
    overrides: Sequence[str] | dict[str, Any] = (),
    device: str = "auto",
    minutes: float | None = None,
) -> "Outcome":
    """Train what a recipe says (a file, a shipped recipe's name, or a mapping) in the folder `out`, or in runs/NAME.

    The same recipe on an existing folder goes on where it stopped. `overrides` are "model.layers=4" or
    {"model.layers": 4}.
    """
    from regard import recipe as recipes
    from regard.run import train as run
    from regard.training.interrupt import checked_minutes

    if isinstance(overrides, dict):
        overrides = [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    name = "model" if isinstance(recipe, dict) else Path(recipe).stem
    folder = Path(out or Path("runs") / name)
    return run(recipes.load(recipe, overrides, folder), folder, device, checked_minutes(minutes))


def load(folder: str | Path, device: str = "auto", precision: str = "float32") -> Any:
    """A trained model, ready to be used. Reads YAML, JSON and safetensors; runs no code from the folder.

    What it can do is its task's affair: a Translator translates. A checkpoint of a run (RUN/checkpoints/step-N,
    RUN/last) can be loaded too. `precision` is that of decoding: float32, or bf16, which is faster.
    """
    from regard.device import check_bf16, pick_device
    from regard.io.tensors import load_weights, read_whole
    from regard.recipe import read_recipe

    weights = Path(folder)
    home = home_of(weights)
    recipe, chosen = read_recipe(home), pick_device(device)
    if precision == "bf16":
        check_bf16(chosen, "precision")
    if home == weights and not (weights / WEIGHTS).exists() and (home / "last").exists():
        raise RegardError(
            f"{folder}: training has not finished; resume it, or give {home / 'last'}, its last checkpoint"
        )
    made: Any = recipe.task.load_predictor(recipe, home)
    load_weights(made.model, read_whole(weights, "model"), weights / WEIGHTS)
    made.model.to(chosen).eval()
    made.precision, made.run = precision, weights
    return made


def load_as(
    kind: type[T] | tuple[type[T], ...],
    folder: Path,
    device: str,
    command: str,
    opener: Opener = load,
) -> T:
    """The same for a command that serves one kind of model only, or some; `opener` may put it into another engine."""
    made = opener(folder, device)
    if not isinstance(made, kind):
        task = made.recipe.task.kind
        other = f"which `regard {command}` is not for; there is `regard {COMMANDS.get(task, task)}`"
        raise RegardError(f"{folder}: a model of the task {task}, {other}")
    return made
