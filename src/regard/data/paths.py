"""Where files are looked for: the working folder, $REGARD_DATA, and the cache. Knows no format."""

import os
from pathlib import Path

from regard.errors import RegardError


def cache_root() -> Path:
    return Path(os.environ.get("REGARD_CACHE") or Path.home() / ".cache" / "regard")


def data_folders() -> list[Path]:
    """Folders that hold sets of the catalog, in the order they are searched."""
    given = os.environ.get("REGARD_DATA")
    return [*([Path(given)] if given else []), cache_root() / "data"]


def find(name: str) -> Path:
    """The file `name`, looked up in the working folder, then in $REGARD_DATA."""
    places = _places(name)
    for path in places:
        if path.is_dir():
            raise RegardError(f"{path} is a folder; give a file in it")
        if path.exists():
            return path
    looked = " and in ".join(dict.fromkeys(str(p.absolute().parent) for p in places))
    hint = (
        ""
        if os.environ.get("REGARD_DATA") or Path(name).is_absolute()
        else "; $REGARD_DATA is searched too when it is set"
    )
    raise RegardError(f"{name}: there is no such file (looked in {looked}{hint})")


def find_texts(name: str) -> list[Path]:
    """The file `name`; or, where it is a folder, every .txt and .txt.gz in and below it, in order of names."""
    folder = next((path for path in _places(name) if path.is_dir()), None)
    if folder is None:
        return [find(name)]
    found = [path for path in sorted(folder.rglob("*")) if path.name.endswith((".txt", ".txt.gz")) and path.is_file()]
    if not found:
        raise RegardError(f"{folder}: there is no .txt file in this folder")
    return found


def _places(name: str) -> list[Path]:
    given = os.environ.get("REGARD_DATA")
    return [Path(name).expanduser(), *([Path(given) / name] if given else [])]
