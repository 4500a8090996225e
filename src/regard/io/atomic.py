"""A folder that is whole or absent: it is written beside its place and appears by one rename; and JSON for it."""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import RegardError, telling


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Where to write what will be `out`, which must not be there, or be empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RegardError(f"{out} is there already, and not empty; give another place")
    hidden = out.absolute().parent / f".{out.name}.{os.getpid()}"
    try:
        with telling(out, "written"):
            hidden.mkdir(parents=True)
            yield hidden
            if out.exists():
                out.rmdir()
            os.replace(hidden, out)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
