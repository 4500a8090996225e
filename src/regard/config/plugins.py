"""Plugins: modules of somebody else that register choices. A user has them imported; a model's folder never does.

A user's own recipe names them, `--plugin` and REGARD_PLUGINS give them, and an installed package has them as entry
points of the group `regard.plugins`. The configuration of a trained model only says which it needs.
"""

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from traceback import extract_tb

from regard.config.registry import registering_for
from regard.errors import RegardError
from regard.io.run_folder import is_model_folder

VARIABLE, GROUP = "REGARD_PLUGINS", "regard.plugins"
MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def load_plugins(names: Iterable[str], where: str) -> None:
    """Import modules by name, from sys.path or the current folder; `where` they are named is for messages."""
    for name in names:
        if not isinstance(name, str) or not MODULE.fullmatch(name):
            raise RegardError(
                f"{where}: the plugin {name!r} is no module's name; write it as one imports it: my_package.parts"
            )
        if name not in sys.modules:
            _load(name, where)


def allow_plugins(names: Iterable[str], where: str, load: bool = True) -> None:
    """Plugins that the user gives, for the processes that this one starts and, if they are loaded, for this one."""
    names = list(names)
    load_plugins(names if load else [], where)
    os.environ[VARIABLE] = ",".join(dict.fromkeys([*_named_in_environment(), *names]))


def load_allowed_plugins() -> None:
    """Those of REGARD_PLUGINS and of installed packages."""
    load_plugins(_named_in_environment(), VARIABLE)
    for module, package in _installed():
        load_plugins([module], f"the installed package {package}")


def require_plugins(names: Iterable[str], where: str) -> None:
    """Raise RegardError where one of the plugins that a trained model names has not been loaded by the user."""
    if missing := [name for name in names if name not in sys.modules]:
        flags = " ".join(f"--plugin {name}" for name in missing)
        raise RegardError(
            f"{where}: the model needs the plugin {' and '.join(missing)}, code which is not run unasked; "
            f"if you trust it, add {flags} (in Python, import it first), or set {VARIABLE}={','.join(missing)}"
        )


def _named_in_environment() -> list[str]:
    return [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]


@cache
def _installed() -> list[tuple[str, str]]:
    """(module, package) of the entry points."""
    return [(point.module, point.dist.name if point.dist else point.name) for point in entry_points(group=GROUP)]


def _load(name: str, where: str) -> None:
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    importlib.invalidate_caches()
    try:
        with registering_for(name):
            for part in _packages(name):
                _refuse_model_folder(part, name, where)
                importlib.import_module(part)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise RegardError(
                f"{where}: there is no plugin {name}; install it, put it on PYTHONPATH, or run where it stands"
            ) from None
        raise RegardError(f"{where}: the plugin {name} needs {error.name}, which is not installed") from None
    except RegardError as error:
        raise RegardError(f"{where}: the plugin {name} cannot be loaded: {error}") from error
    except (Exception, SystemExit) as error:
        last = extract_tb(error.__traceback__)[-1]
        place = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
        raise RegardError(
            f"{where}: the plugin {name} cannot be loaded: {type(error).__name__}: {error}{place}"
        ) from error


def _packages(name: str) -> Iterator[str]:
    """`a`, `a.b`, `a.b.c`: a package is looked at before anything in it is run."""
    parts = name.split(".")
    return (".".join(parts[: n + 1]) for n in range(len(parts)))


def _refuse_model_folder(part: str, name: str, where: str) -> None:
    spec = importlib.util.find_spec(part) if part not in sys.modules else None
    if spec is None:
        return
    places = [spec.origin] if spec.has_location and spec.origin else list(spec.submodule_search_locations or ())
    for place in places:
        if folder := next((folder for folder in Path(place).resolve().parents if is_model_folder(folder)), None):
            raise RegardError(
                f"{where}: the plugin {name} stands inside the model folder {folder}, from which nothing is run; "
                "put it elsewhere"
            )
