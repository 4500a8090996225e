"""A trained model is a folder that needs nothing else: config.yaml, model.safetensors, tokenizer/, results.json."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard import config
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.recipe import Recipe

T = TypeVar("T")
CONFIG, WEIGHTS, RESULTS, LOG = "config.yaml", "model.safetensors", "results.json", "log.jsonl"
COMMANDS = {  # by task, what a trained model is asked with, where that has another name
    "translation": "translate",
    "lm": "generate",
    "pretraining": "fill",
    "embedding": "embed",
    "regress": "classify",
}
PARTS = ("tokenizer", "labels.json")  # what a task writes there; not every task has all


def read_recipe(folder: Path) -> "Recipe":
    """The folder's recipe, complete and resolved."""
    from regard.recipe import parse

    if not folder.is_dir():
        raise RegardError(f"{folder}: there is no such folder")
    if not (folder / CONFIG).exists():
        raise RegardError(f"{folder}: not a trained model ({CONFIG} is missing)")
    return parse(config.read(folder / CONFIG))


def home_of(folder: Path) -> Path:
    """Where config and tokenizer are: in the folder itself, or for a checkpoint in its run."""
    is_checkpoint = not (folder / CONFIG).exists() and (folder / "state.json").exists()
    return folder.resolve().parent.parent if is_checkpoint else folder


def load(folder: str | Path, device: str = "auto", precision: str = "float32") -> Any:
    """A trained model, ready to be used. Reads YAML, JSON and safetensors; runs no code from the folder.

    What it can do is its task's affair: a Translator translates. A checkpoint of a run (RUN/checkpoints/step-N,
    RUN/last) can be loaded too. `precision` is that of decoding: float32, or bf16, which is faster.
    """
    from regard.device import check_bf16, pick_device
    from regard.training.weights import load_weights, read_whole

    weights = Path(folder)
    home = home_of(weights)
    recipe, chosen = read_recipe(home), pick_device(device)
    if precision == "bf16":
        check_bf16(chosen, "precision")
    if home == weights and not (weights / WEIGHTS).exists() and (home / "last").exists():
        raise RegardError(
            f"{folder}: training has not finished; resume it, or give {home / 'last'}, its last checkpoint"
        )
    made: Any = recipe.task.open(recipe, home)
    load_weights(made.model, read_whole(weights, "model"), weights / WEIGHTS)
    made.model.to(chosen).eval()
    made.precision, made.run = precision, weights
    return made


def load_as(
    kind: type[T] | tuple[type[T], ...],
    folder: Path,
    device: str,
    command: str,
    opener: Callable[[Path, str], Any] = load,
) -> T:
    """The same for a command that serves one kind of model only, or some; `opener` may put it into another engine."""
    made = opener(folder, device)
    if not isinstance(made, kind):
        task = made.recipe.task.kind
        other = f"which `regard {command}` is not for; there is `regard {COMMANDS.get(task, task)}`"
        raise RegardError(f"{folder}: a model of the task {task}, {other}")
    return made
