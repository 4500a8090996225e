"""`regard.train`: the training command as a function."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.training.run import Outcome


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
    from regard.training.interrupt import checked_minutes
    from regard.training.run import train as run

    if isinstance(overrides, dict):
        overrides = [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    name = "model" if isinstance(recipe, dict) else Path(recipe).stem
    folder = Path(out or Path("runs") / name)
    return run(recipes.load(recipe, overrides, folder), folder, device, checked_minutes(minutes))
