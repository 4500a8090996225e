"""What schedulers have in common: the requests of a worker, how they are answered, and what a scheduler offers."""

import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Unpack

from regard.errors import RegardError
from regard.serve.messages import Item, RequestOptions, Result, WorkerReply

LoadedModel = Any  # what `regard.load` returns; its methods say which operations it has


class Send(Protocol):
    def __call__(self, **message: Unpack[WorkerReply]) -> None: ...


@dataclass
class WorkRequest:
    """A request: items of one operation, and options for all of them."""

    id: int
    op: str
    items: Sequence[Item]
    options: RequestOptions = field(default_factory=RequestOptions)
    results: list[Result] = field(default_factory=list)  # of its first items

    @property
    def remaining(self) -> Sequence[Item]:
        return self.items[len(self.results) :]


class Scheduler(Protocol):
    ops: tuple[str, ...]

    @property
    def busy(self) -> bool: ...

    def add(self, request: WorkRequest) -> None: ...

    def cancel(self, id: int) -> None:
        """Drop a request whose client has gone."""

    def step(self) -> None:
        """Compute a little of what waits."""


def log_exception(error: BaseException) -> None:
    """A line of the log: type and place of an error, without its message, which may hold a user's text."""
    where = [f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in traceback.extract_tb(error.__traceback__)]
    line = json.dumps({"event": "worker_error", "error": type(error).__name__, "where": where})
    print(line, file=sys.stderr, flush=True)


def send_error(send: Send, id: int, error: Exception) -> None:
    """A mistake of the client in its own words; of any other error the client learns only that there was one."""
    if isinstance(error, RegardError):
        send(id=id, error=str(error), code="impossible")
    else:
        log_exception(error)
        send(id=id, error="the model failed on this request", code="internal")


def ignore(warning: str) -> None:
    """Warnings are for people at a terminal."""
