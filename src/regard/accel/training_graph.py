"""Micro-batches of a shape seen before, forward and backward, as one recorded launch (a CUDA graph).

A step of a small model is a thousand short kernels, and a host may need longer to launch them than the GPU to run
them. What is recorded runs without the host. The first micro-batch of a shape runs as usual, which compiles what it
needs; the second is recorded; from then on new values are copied to where the recording reads them.
"""

from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from regard.device import gc_disabled

MOST = 256  # recordings that are kept; shapes beyond run as usual


class Replay:
    def __init__(self, work: Callable[[Any], Tensor], stream: torch.cuda.Stream) -> None:
        """`work` computes a batch's gradients, adds them up in place and returns its loss."""
        self.work, self.stream = work, stream
        self.recorded: dict[Hashable, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]] = {}
        self.seen: set[Hashable] = set()
        self.full = False

    def __call__(self, batch: Any) -> Tensor:
        given = leaves(batch)
        key = tuple(value if not isinstance(value, Tensor) else tuple(value.shape) for value in given)
        tensors = [value for value in given if isinstance(value, Tensor)]
        if key in self.recorded:
            graph, places, loss = self.recorded[key]
            torch._foreach_copy_(places, tensors, non_blocking=True)
            graph.replay()
            return loss.clone()
        if key in self.seen and not self.full:
            self._record(key, batch)
            return self(batch)
        self.seen.add(key)
        return self.work(batch.to(self.stream.device))

    def _record(self, key: Hashable, batch: Any) -> None:
        batch = batch.to(self.stream.device, copy=True)  # later values are written there: no one else may hold it
        if not self.recorded:
            torch.cuda.empty_cache()  # what the usual way has kept for itself
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self.recorded.values()))[0].pool() if self.recorded else None
        torch.manual_seed(0)  # the noise that tells calls apart is part of the recording
        try:
            # Other threads prepare batches meanwhile: what they ask of the device is their own affair.
            with gc_disabled(), torch.cuda.graph(graph, pool, self.stream, "thread_local"):
                loss = self.work(batch)
        except torch.OutOfMemoryError:
            self.full = True
            return
        places = [value for value in leaves(batch) if isinstance(value, Tensor)]
        self.recorded[key] = graph, places, loss
        self.full = len(self.recorded) >= MOST


class Recorded:
    """Work that is the same in every step, on tensors that stay where they are: recorded when it is asked for again."""

    def __init__(self, work: Callable[[], Tensor], stream: torch.cuda.Stream) -> None:
        self.work, self.stream = work, stream
        self.graph: torch.cuda.CUDAGraph | None = None
        self.asked = 0

    def __call__(self) -> Tensor:
        self.asked += 1
        if self.asked == 1:
            return self.work()
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with gc_disabled(), torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
                self.out = self.work()
        self.graph.replay()
        return self.out.clone()


def leaves(value: Any) -> list[Any]:
    """What a batch is made of: tensors, and numbers that a recording cannot change."""
    if is_dataclass(value):
        return [leaf for field in fields(value) for leaf in leaves(getattr(value, field.name))]
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]
