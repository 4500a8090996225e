"""Ctrl-C, SIGTERM and a time limit, turned into a request that the loop answers between two steps."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from regard.errors import RegardError


def checked_minutes(minutes: float | None) -> float | None:
    """A user's time limit, or RegardError where no step fits into it."""
    if minutes is not None and not minutes > 0:  # which nan is not, either
        raise RegardError(f"minutes must be more than 0, not {minutes:g}")
    return minutes


class Interrupt:
    """While active, the first signal asks to stop and save; a second one stops at once, as usual."""

    class Now(Exception):
        """Raised inside long work other than steps, so that it ends early."""

    def __init__(self, minutes: float | None = None) -> None:
        self.signal: int | None = None
        self._deadline = time.monotonic() + 60 * minutes if minutes is not None else None
        self._before: dict[int, Any] = {}

    @property
    def wanted(self) -> bool:
        late = self._deadline is not None and time.monotonic() > self._deadline
        return self.signal is not None or late

    def wrap(self, note: Callable[[str, int, int], None]) -> Callable[[str, int, int], None]:
        """A progress callback that ends the work when a signal has come; the time limit waits for it to finish."""

        def told(what: str, done: int, total: int) -> None:
            if self.signal is not None:
                raise Interrupt.Now
            note(what, done, total)

        return told

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._caught)
        return self

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, self._before[number])

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
