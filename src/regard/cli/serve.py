"""`regard serve`: names, keys and settings of a server from the command line."""

import asyncio
import os
import re
from pathlib import Path

from regard.errors import RegardError
from regard.io.models import find_model
from regard.serve.settings import ServerSettings

NAME = re.compile(r"[\w.-]{1,64}")


def named_runs(runs: list[str]) -> dict[str, Path]:
    """RUN or NAME=RUN, by name; a folder's name is its default, and RUN may be a model's name."""
    paths: dict[str, Path] = {}
    for argument in runs:
        name, equals, run = argument.partition("=")
        path = find_model(run if equals else argument)
        name = name if equals else path.resolve().name
        if not NAME.fullmatch(name):
            raise RegardError(f"a model's name has letters, digits, dots, - and _, not {name!r}; write NAME={path}")
        if name in paths:
            raise RegardError(f"two models are called {name}; write NAME={path}")
        if not path.is_dir():
            raise RegardError(f"{path}: there is no such folder")
        paths[name] = path
    return paths


def read_keys(option: str | None, variable: str, file: Path | None) -> tuple[str, ...]:
    """From the option or the environment, and a file with one a line."""
    keys = [option or os.environ.get(variable, "")]
    if file is not None:
        try:
            keys += [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except UnicodeDecodeError:
            raise RegardError(f"{file}: it is not UTF-8; write one key a line") from None
        if not any(keys):
            raise RegardError(f"{file}: there is no key in it; write one a line")
    return tuple(key for key in keys if key)


def serve(settings: ServerSettings) -> None:
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise RegardError(
            f"{error.name} is not installed; `pip install regard[serve]` has all that is needed"
        ) from None
    from regard.serve.server import run_server

    asyncio.run(run_server(settings))
