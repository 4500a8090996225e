"""Text and JSON files; an error of the operating system becomes a sentence that names the path."""

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from regard.errors import RegardError


@contextlib.contextmanager
def os_errors_for(path: object, action: str = "read") -> Iterator[None]:
    """Turns an OSError inside into a RegardError: the path cannot be read, or whatever the `action` was."""
    try:
        yield
    except BrokenPipeError:
        raise  # its reader has seen enough, which is no mistake: commands end as other tools do
    except OSError as error:
        raise RegardError(f"{path}: cannot be {action} ({error.strerror or error})") from None


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    try:
        with os_errors_for(path):
            return Path(path).read_text(encoding=encoding)
    except UnicodeDecodeError as error:
        raise RegardError(f"{path}: not UTF-8 text (byte {error.start})") from None


def write_json(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def json_safe(value: object) -> object:
    """NaN and infinity as text: JSON has no such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: json_safe(v) for k, v in value.items()}
    return value
