"""The public API: `regard.train` trains what a recipe says, `regard.load` opens what was trained."""

import contextlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard.errors import RegardError
from regard.io.run_folder import BASE, CONFIG, WEIGHTS, run_folder_of

if TYPE_CHECKING:
    from regard.predict.base import Predictor
    from regard.run import TrainingResult

T = TypeVar("T")
ModelLoader = Callable[[Path, str], Any]  # (run, device): a predictor, in an engine
COMMANDS = {  # by task, the command of its trained models, where that has another name
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
) -> "TrainingResult":
    """Train what a recipe says (a file, a shipped recipe's name, or a mapping) in the folder `out`, or in runs/NAME.

    The same recipe on an existing folder goes on where it stopped. `overrides` are "model.layers=4" or
    {"model.layers": 4}.
    """
    from regard import recipe as recipes
    from regard.run import train_recipe as run
    from regard.training.interrupt import check_minutes

    if isinstance(overrides, dict):
        overrides = [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    name = "model" if isinstance(recipe, dict) else Path(recipe).stem
    folder = Path(out or Path("runs") / name)
    return run(recipes.load_recipe(recipe, overrides, folder), folder, device, check_minutes(minutes))


def load(folder: str | Path, device: str = "auto", precision: str = "float32") -> Any:
    """A trained model as a `Predictor` of its task, such as a Translator; by its folder, or a name such as "en-de".

    Reads YAML, JSON and safetensors, compared with the folder's manifest; runs no code from the folder. A checkpoint of
    a run (RUN/checkpoints/step-N, RUN/last) can be loaded too. `precision` is that of decoding: float32, or bf16,
    which is faster; or int8, on a CPU, in which the model then computes everything.
    """
    from regard.accel.int8 import INT8, int8_or_float32, use_int8
    from regard.device import check_bf16, pick_device
    from regard.io.building import building_for
    from regard.io.int8 import is_int8
    from regard.io.low_rank import read_weights
    from regard.io.manifest import MODEL, verified
    from regard.io.model_card import show_terms
    from regard.io.models import find_model
    from regard.io.tensors import load_weights, tensor_shapes
    from regard.predict.base import PRECISIONS
    from regard.recipe import read_recipe

    if precision not in PRECISIONS:
        raise RegardError(f"precision is {precision!r}; write {' or '.join(PRECISIONS)}")
    weights, torch_device = find_model(folder), pick_device(device)
    if precision == "bf16":
        check_bf16(torch_device, "precision")
    elif precision == INT8:
        precision = int8_or_float32(torch_device)
    home = run_folder_of(weights)
    if home == weights and not (weights / WEIGHTS).exists() and (home / "last").exists():
        raise RegardError(
            f"{folder}: training has not finished; resume it, or give {home / 'last'}, its last checkpoint"
        )
    with contextlib.ExitStack() as checks:
        if home != weights:
            checks.enter_context(verified(home, MODEL))
        parts = None if home != weights else (*MODEL, WEIGHTS)
        check = checks.enter_context(verified(weights, parts, read_ahead=(WEIGHTS,)))
        recipe = read_recipe(home)
        with building_for(weights, home / CONFIG):
            predictor: Predictor = recipe.task.load_predictor(recipe, home)
        private = check.holds(weights / WEIGHTS) and not (weights / BASE).exists()  # a base's weights are its own
        if private and is_int8(tensor_shapes(weights / WEIGHTS)):  # the few that are as stored would hold all of it
            private = False
        load_weights(predictor.model, read_weights(weights), weights / WEIGHTS, private)
    show_terms(home)
    predictor.model.to(torch_device).eval()
    if precision == INT8:
        use_int8(predictor.model)
    predictor.precision, predictor.run, predictor.load_run = precision, weights, load
    return predictor


def load_as(
    kind: type[T] | tuple[type[T], ...], folder: Path, device: str, command: str, loader: ModelLoader = load
) -> T:
    """The same for a command of one kind of predictor, or some; `loader` may put it into another engine."""
    predictor = loader(folder, device)
    if not isinstance(predictor, kind):
        task = predictor.recipe.task.kind
        other = f"which `regard {command}` is not for; there is `regard {COMMANDS.get(task, task)}`"
        raise RegardError(f"{folder}: a model of the task {task}, {other}")
    return predictor
