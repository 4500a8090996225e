"""Advisory file locks, which the system releases however a process ends."""

from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def lock_file(file: IO[str], wait: bool) -> bool | None:
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
