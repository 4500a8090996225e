"""The data loader: micro-batches of each optimiser step, prefetched, divided among ranks, resumed exactly.

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


class EpochBatches(Protocol):
    """An epoch's micro-batches in their global order, as row indices, and how to collate one."""

    @property
    def batches(self) -> Sequence[np.ndarray]: ...
    def collate(self, indices: np.ndarray) -> object: ...
    def targets(self, indices: np.ndarray) -> int: ...


class StepBatches(NamedTuple):
    """The micro-batches of one optimiser step."""

    epoch: int
    step: int  # within the epoch, from 0
    batches: list[Any]  # this rank's micro-batches, or its parts of them
    resume_at: tuple[int, int]  # (epoch, step) of the next optimiser step
    targets: int  # of all ranks together: what the step's loss is divided by
    dummies: int = 0  # so many of `batches`, the last ones, count for nothing: other ranks have more


class Loader:
    """Yields `StepBatches` without end, from `start` on.

    An optimiser step takes `accumulate` micro-batches of the global sequence, the last of an epoch the rest. Where they
    cannot be divided evenly among the ranks, each is cut into so many parts that they can: the examples of a step do
    not depend on the world size. Rank r takes the parts r, r + world_size, … One thread collates up to `prefetch` steps
    in advance; the next epoch is planned while the current one runs.
    """

    def __init__(
        self,
        make_epoch: Callable[[int], EpochBatches],
        accumulate: int = 1,
        start: tuple[int, int] = (0, 0),
        rank: int = 0,
        world_size: int = 1,
        prefetch: int = 8,
    ) -> None:
        if accumulate < 1 or prefetch < 1 or not 0 <= rank < world_size or min(start) < 0:
            raise ValueError("accumulate and prefetch must be at least 1, rank below world_size, start not negative")
        self._make_epoch, self._accumulate, self._rank, self._world_size = make_epoch, accumulate, rank, world_size
        self._queue: queue.Queue[StepBatches | BaseException] = queue.Queue(maxsize=prefetch)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, args=start, name="regard-loader", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[StepBatches]:
        return self

    def __next__(self) -> StepBatches:
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
            for batches in self._steps(epoch, step):
                self._queue.put(batches)
                if self._stop.is_set():
                    return
        except BaseException as error:
            self._queue.put(error)

    def _steps(self, number: int, step: int) -> Iterator[StepBatches]:
        epoch = self._make_epoch(number)
        while True:
            total = -(-len(epoch.batches) // self._accumulate)
            if total == 0:
                raise RegardError(f"epoch {number} has no batch to learn from")
            following: Future[EpochBatches] | None = None
            for index in range(step, total):
                if following is None and 2 * index >= total:
                    following = _in_background(self._make_epoch, number + 1)
                batches = epoch.batches[index * self._accumulate : (index + 1) * self._accumulate]
                parts = parts_per_batch(self._accumulate, self._world_size)
                own, dummies = rank_batches(batches, self._rank, self._world_size, parts)
                collated = []
                for indices in own:
                    if self._stop.is_set():
                        return
                    collated.append(epoch.collate(indices))
                resume_at = (number, index + 1) if index + 1 < total else (number + 1, 0)
                yield StepBatches(number, index, collated, resume_at, sum(map(epoch.targets, batches)), dummies)
            epoch = following.result() if following is not None else self._make_epoch(number + 1)
            number, step = number + 1, max(0, step - total)


def parts_per_batch(accumulate: int, world_size: int) -> int:
    """Into how many parts each micro-batch is cut, so that every rank has the same number of them."""
    return world_size // math.gcd(accumulate, world_size)


def rank_batches(batches: Sequence[np.ndarray], rank: int, world_size: int, parts: int) -> tuple[list[np.ndarray], int]:
    """This rank's parts of a step's micro-batches, and how many of them, at the end, are dummies.

    All ranks have equally many, since they synchronise in each. Where one has none left it takes an example that counts
    for nothing.
    """
    pieces = [rows[n::parts] for rows in batches for n in range(parts)]
    own = [piece for piece in pieces[rank::world_size] if len(piece)]
    dummies = -(-len(pieces) // world_size) - len(own)
    return own + [batches[0][:1]] * dummies, dummies


def _in_background(work: Callable[[int], EpochBatches], number: int) -> Future[EpochBatches]:
    future: Future[EpochBatches] = Future()

    def run() -> None:
        try:
            future.set_result(work(number))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="regard-epoch", daemon=True).start()
    return future
