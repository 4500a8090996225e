"""Ctrl-C, SIGTERM and a time limit, turned into a request to stop that the loop answers between two steps."""

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from regard.errors import RegardError
from regard.reporting import Progress

SignalHandler = Callable[[int, FrameType | None], object] | int | None


def check_minutes(minutes: float | None) -> float | None:
    """A user's time limit, or RegardError where no step fits into it."""
    if minutes is not None and not minutes > 0:  # which nan is not, either
        raise RegardError(f"minutes must be more than 0, not {minutes:g}")
    return minutes


class Interrupted(Exception):
    """Raised inside long work other than steps, so that it ends early."""


class Interrupt:
    """While active, the first signal requests to stop and save; a second one stops at once, as usual."""

    def __init__(self, minutes: float | None = None) -> None:
        self.signal: int | None = None
        self._deadline = time.monotonic() + 60 * minutes if minutes is not None else None
        self._handlers: dict[int, SignalHandler] = {}

    @property
    def requested(self) -> bool:
        late = self._deadline is not None and time.monotonic() > self._deadline
        return self.signal is not None or late

    def wrap(self, progress: Progress) -> Progress:
        """A progress callback that raises `Interrupted` after a signal; the time limit waits for the work to finish."""

        def checked(what: str, done: int, total: int) -> None:
            if self.signal is not None:
                raise Interrupted
            progress(what, done, total)

        return checked

    def __enter__(self) -> "Interrupt":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._handlers[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        signal.signal(number, self._handlers[number])

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
