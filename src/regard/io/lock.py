"""Advisory file locks, which the system releases however a process ends."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def lock_file(file: IO[str] | int, wait: bool) -> bool | None:
    """Whether this process now holds the lock; None where the system has none."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


@contextlib.contextmanager
def lock_folder(folder: Path, file: Path) -> Iterator[bool]:
    """Whether this process alone holds the folder, by a lock on it and one on a file in it.

    The file can be removed, which would let others in; but not every file system locks folders.
    """
    with open(file, "w") as opened:
        free = lock_file(opened, wait=False) is not False
        if os.name != "posix":
            yield free
            return
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            yield free and lock_file(descriptor, wait=False) is not False
        finally:
            os.close(descriptor)
