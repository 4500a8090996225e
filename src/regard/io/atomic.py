"""Atomic writes: a file or folder is written under a temporary name beside its place and appears by one rename."""

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from regard.errors import RegardError
from regard.io.files import os_errors_for


@contextlib.contextmanager
def atomic_write(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file that replaces `path` by one rename when all is written; the old one may be read until then.

    A symbolic link stays, its target is replaced. What is not a regular file (a FIFO, a device, the >(command) of a
    shell) is written into.
    """
    encoding = None if "b" in mode else "utf-8"
    with os_errors_for(path, "written"):
        special = _special_file(path)
        if special is not None:
            with open(special, mode, encoding=encoding) as file:
                yield file
            return
        target = Path(os.path.realpath(path))
        temporary = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with open(temporary, mode, encoding=encoding) as file:
                yield file
            os.replace(temporary, target)
        finally:
            with contextlib.suppress(OSError):  # the folder may not be one, which the error says
                temporary.unlink()


def _special_file(path: Path) -> Path | int | None:
    """What to open instead of replacing the path: a descriptor, or what is not a regular file; else None."""
    try:
        mode = path.stat().st_mode  # of what links lead to; those that lead in a circle are an error
    except FileNotFoundError:
        return None
    descriptor = _descriptor(path)
    if descriptor is not None:
        return os.dup(descriptor)  # to open the name would empty a file that /dev/stdout goes to
    return None if stat.S_ISREG(mode) else path


def _descriptor(path: Path) -> int | None:
    """The number of a descriptor of this process that /dev/fd/63, /dev/stdout or a link to them names."""
    own = ("/dev/fd", f"/proc/{os.getpid()}/fd")  # on Linux the first is a link to the second
    while not (path.name.isdigit() and os.path.realpath(path.parent) in own):
        if not path.is_symlink():
            return None
        path = path.parent / os.readlink(path)
    return int(path.name)


@contextlib.contextmanager
def atomic_folder(out: Path) -> Iterator[Path]:
    """The temporary folder that becomes `out`, which must not exist, or be empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RegardError(f"{out} is there already, and not empty; give another place")
    temporary = out.absolute().parent / f".{out.name}.{os.getpid()}"
    try:
        with os_errors_for(out, "written"):
            temporary.mkdir(parents=True)
            yield temporary
            if out.exists():
                out.rmdir()
            os.replace(temporary, out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def fsync(path: Path) -> None:
    """Makes a file or folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
