"""Optimiser steps from a global sequence of micro-batches: prefetched, shared out to ranks, resumed exactly.

The sequence of an epoch is made elsewhere; this module knows no data, no torch and no processes.
"""

import math
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

import numpy as np

from regard.errors import RegardError


class Epoch(Protocol):
    """An epoch's micro-batches in their global order, and how row indices become one."""

    @property
    def batches(self) -> Sequence[np.ndarray]: ...
    def collate(self, indices: np.ndarray) -> Any: ...
    def targets(self, indices: np.ndarray) -> int: ...


class Step(NamedTuple):
    epoch: int
    step: int  # within the epoch, from 0
    batches: list[Any]  # this rank's micro-batches, or its parts of them
    after: tuple[int, int]  # the (epoch, step) to resume from once this step is done
    targets: int  # of all ranks together: what the step's loss is divided by
    idle: int = 0  # so many of `batches`, the last ones, count for nothing: other ranks have more to do


class Loader:
    """Yields `Step`s without end, from `start` on.

    An optimiser step takes `group` micro-batches of the global sequence, the last of an epoch the rest. Where they
    cannot be shared out evenly to the ranks, each is cut into so many parts that they can: the examples of a step do
    not depend on the world. Of the parts rank r takes r, r + world, … One thread collates up to `ahead` steps in
    advance; the next epoch is planned while the current one runs.
    """

    def __init__(
        self,
        make_epoch: Callable[[int], Epoch],
        group: int = 1,
        start: tuple[int, int] = (0, 0),
        rank: int = 0,
        world: int = 1,
        ahead: int = 8,
    ) -> None:
        if group < 1 or ahead < 1 or not 0 <= rank < world or min(start) < 0:
            raise ValueError("group and ahead must be at least 1, rank below world, start not negative")
        self._make_epoch, self._group, self._rank, self._world = make_epoch, group, rank, world
        self._queue: queue.Queue[Step | BaseException] = queue.Queue(maxsize=ahead)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, args=start, name="regard-loader", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Step]:
        return self

    def __next__(self) -> Step:
        if self._stop.is_set():
            raise StopIteration
        item = self._queue.get()
        if isinstance(item, BaseException):
            self.close()
            raise item
        return item

    def close(self) -> None:
        """End the thread; what it prepared is dropped."""
        self._stop.set()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()  # wakes a thread that waits for room
            except queue.Empty:
                self._thread.join(0.01)

    def __enter__(self) -> "Loader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the thread ---

    def _work(self, epoch: int, step: int) -> None:
        try:
            for made in self._steps(epoch, step):
                self._queue.put(made)
                if self._stop.is_set():
                    return
        except BaseException as error:
            self._queue.put(error)

    def _steps(self, number: int, step: int) -> Iterator[Step]:
        epoch = self._make_epoch(number)
        while True:
            total = -(-len(epoch.batches) // self._group)
            if total == 0:
                raise RegardError(f"epoch {number} has no batch to learn from")
            following: Future[Epoch] | None = None
            for index in range(step, total):
                if following is None and 2 * index >= total:
                    following = _in_background(self._make_epoch, number + 1)
                taken = epoch.batches[index * self._group : (index + 1) * self._group]
                mine, idle = share(taken, self._rank, self._world, cuts(self._group, self._world))
                collated = []
                for indices in mine:
                    if self._stop.is_set():
                        return
                    collated.append(epoch.collate(indices))
                after = (number, index + 1) if index + 1 < total else (number + 1, 0)
                yield Step(number, index, collated, after, sum(map(epoch.targets, taken)), idle)
            epoch = following.result() if following is not None else self._make_epoch(number + 1)
            number, step = number + 1, max(0, step - total)


def cuts(group: int, world: int) -> int:
    """Into how many parts each micro-batch is cut, so that every rank has the same number of them."""
    return world // math.gcd(group, world)


def share(batches: Sequence[np.ndarray], rank: int, world: int, parts: int) -> tuple[list[np.ndarray], int]:
    """This rank's parts of a step's micro-batches, and how many of them, at the end, are there for company only.

    All ranks have equally many, since they meet in each. Where one has none left it takes an example that counts for
    nothing.
    """
    pieces = [rows[n::parts] for rows in batches for n in range(parts)]
    mine = [piece for piece in pieces[rank::world] if len(piece)]
    idle = -(-len(pieces) // world) - len(mine)
    return mine + [batches[0][:1]] * idle, idle


def _in_background(work: Callable[[int], Epoch], number: int) -> "Future[Epoch]":
    future: Future[Epoch] = Future()

    def run() -> None:
        try:
            future.set_result(work(number))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="regard-epoch", daemon=True).start()
    return future
