"""Trained models by name: the folders that hold them, and the card of each. Loads none.

A name is looked up in the folders of REGARD_MODELS, in an installed package `regard_models`, and in `models/` of the
checkout that this package runs from. What exists as a path is that path.
"""

import importlib.util
import os
import re
from pathlib import Path

from regard.config import nearest
from regard.errors import RegardError
from regard.io.run_folder import CONFIG

VARIABLE = "REGARD_MODELS"
PACKAGE = "regard_models"
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


def models_folders() -> list[Path]:
    """Folders that hold models, in the order they are searched."""
    own = [Path(part).expanduser() for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    spec = importlib.util.find_spec(PACKAGE)
    installed = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    root = Path(__file__).resolve().parents[3]
    checkout = [root / "models"] if (root / "pyproject.toml").is_file() else []
    return [*own, *installed, *checkout]


def known_models() -> dict[str, Path]:
    """The folder of each model that has a name."""
    found: dict[str, Path] = {}
    for folder in models_folders():
        if folder.is_dir():
            for path in sorted(folder.iterdir()):
                if NAME.fullmatch(path.name) and (path / CONFIG).is_file():
                    found.setdefault(path.name, path)
    return found


def find_model(name: str | Path, missing_ok: bool = False) -> Path:
    """The folder of a trained model, given as a path or by its name; an existing path wins over a name.

    A name that no model has is an error, or with `missing_ok` a path, which whoever opens it will miss.
    """
    path = Path(name)
    if os.path.lexists(path) or not NAME.fullmatch(str(name)):
        return path
    known = known_models()
    if path.name in known:
        return _short(known[path.name])
    if missing_ok:
        return path
    if not known:
        raise RegardError(
            f"{name}: there is no such folder, and no model is installed under a name; `regard models list` says more"
        )
    raise RegardError(f"{name}: there is no such folder, and no model of this name; {nearest(str(name), known)}")


def _short(path: Path) -> Path:
    """The path from the working folder, where it lies below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_absolute() and path.is_relative_to(here) else path
