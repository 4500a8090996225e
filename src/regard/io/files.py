"""Text and JSON files; an error of the operating system becomes a sentence that names the path."""

import contextlib
import errno
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from io import BufferedReader
from pathlib import Path
from typing import Any, Protocol

from regard.errors import RegardError

MAX_BYTES = 64 << 20  # of a file that is read whole and parsed; vocabularies have at most some 20 MB


def cache_root() -> Path:
    """The folder for what can be made again."""
    return Path(os.environ.get("REGARD_CACHE") or Path.home() / ".cache" / "regard")


class DamagedFile(RegardError):
    """A file that is not what was written: missing, cut short or changed."""


class ReadCheck(Protocol):
    """Compares what is read with what was written."""

    def check(self, path: Path, content: bytes) -> None:
        """Raises DamagedFile for another content than was written."""


read_checks: ContextVar[tuple[ReadCheck, ...]] = ContextVar("read_checks", default=())  # those of `manifest.verified`


@contextlib.contextmanager
def os_errors_for(path: object, action: str = "read") -> Iterator[None]:
    """Turns an OSError inside into a RegardError: the path cannot be read, or whatever the `action` was."""
    try:
        yield
    except BrokenPipeError:
        raise  # its reader has seen enough, which is no mistake: commands end as other tools do
    except OSError as error:
        raise RegardError(f"{path}: cannot be {action} ({error.strerror or error})") from None


def open_regular(path: str | Path) -> BufferedReader:
    """A regular file, opened to be read: a FIFO might never be written to, and a device never end."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise RegardError(f"{path}: not a regular file (a FIFO, a socket or a device), which is not read")


def read_bytes(path: str | Path, limit: int = MAX_BYTES) -> bytes:
    """All bytes of a regular file of at most `limit`."""
    with os_errors_for(path), open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise RegardError(f"{path}: larger than the {limit >> 10:,} KiB that such a file can have")
    for check in read_checks.get():
        check.check(Path(path), content)
    return content


def read_text(path: str | Path, encoding: str = "utf-8", limit: int = MAX_BYTES) -> str:
    try:
        return read_bytes(path, limit).decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise RegardError(f"{path}: not UTF-8 text (byte {error.start})") from None


def read_json(path: str | Path, expected: type | tuple[type, ...] = dict) -> Any:
    """The content of a JSON file, which must be of the expected type; no message repeats what is in it."""
    content = read_bytes(path)
    try:
        value = json.loads(content)
    except RecursionError:
        raise RegardError(f"{path}: nested too deeply") from None
    except ValueError:  # not UTF-8, too
        raise DamagedFile(f"{path}: damaged: not JSON, or cut short") from None
    if not isinstance(value, expected):
        raise DamagedFile(f"{path}: damaged: it holds another kind of JSON than is expected there")
    return value


def shown(value: object, length: int = 80) -> str:
    """A name or a value of a stranger's file, for a message: its beginning, without what a terminal obeys."""
    text = "".join(c if c.isprintable() else "?" for c in str(value)[: length + 1])
    return text if len(text) <= length else f"{text[:length]}…"


def write_json(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def json_safe(value: object) -> object:
    """NaN and infinity as text: JSON has no such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: json_safe(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [json_safe(v) for v in value]
    return value
