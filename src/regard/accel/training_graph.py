"""Captured training steps: forward and backward of a micro-batch whose shape was seen before, as one CUDA graph.

A step of a small model is a thousand short kernels, and a host may need longer to launch them than the GPU to run
them. A graph runs without the host. The first micro-batch of a shape runs as usual, which compiles what it needs; the
second is captured; from then on new values are copied to where the graph reads them.
"""

from collections.abc import Callable, Hashable
from dataclasses import is_dataclass

import torch
from torch import Tensor

from regard.config import field_values
from regard.device import gc_disabled
from regard.models.batch import Batch

MOST = 256  # graphs that are kept; shapes beyond run as usual


class CapturedMicroBatch:
    def __init__(self, work: Callable[[Batch], Tensor], stream: torch.cuda.Stream) -> None:
        """`work` computes a batch's gradients, adds them up in place and returns its loss."""
        self.work, self.stream = work, stream
        self.graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]] = {}
        self.seen: set[Hashable] = set()
        self.full = False

    def __call__(self, batch: Batch) -> Tensor:
        leaves = batch_leaves(batch)
        key = tuple(value if not isinstance(value, Tensor) else tuple(value.shape) for value in leaves)
        tensors = [value for value in leaves if isinstance(value, Tensor)]
        if key in self.graphs:
            graph, inputs, loss = self.graphs[key]
            torch._foreach_copy_(inputs, tensors, non_blocking=True)
            graph.replay()
            return loss.clone()
        if key in self.seen and not self.full:
            self._capture(key, batch)
            return self(batch)
        self.seen.add(key)
        return self.work(batch.to(self.stream.device))

    def clear(self) -> None:
        """Forget what was captured: from now on the work has other terms."""
        self.graphs.clear()
        self.seen.clear()

    def _capture(self, key: Hashable, batch: Batch) -> None:
        batch = batch.to(self.stream.device, copy=True)  # later values are written there: no one else may hold it
        if not self.graphs:
            torch.cuda.empty_cache()  # what the usual way has kept for itself
        graph = torch.cuda.CUDAGraph()
        pool = next(iter(self.graphs.values()))[0].pool() if self.graphs else None
        torch.manual_seed(0)  # the seeds of calls are part of the graph
        try:
            # Other threads prepare batches meanwhile: their calls of the device are none of the graph's.
            with gc_disabled(), torch.cuda.graph(graph, pool, self.stream, "thread_local"):
                loss = self.work(batch)
        except torch.OutOfMemoryError:
            self.full = True
            return
        inputs = [value for value in batch_leaves(batch) if isinstance(value, Tensor)]
        self.graphs[key] = graph, inputs, loss
        self.full = len(self.graphs) >= MOST


class CapturedUpdate:
    """Work that is the same in every step, on tensors that stay where they are: captured by its second call."""

    def __init__(self, work: Callable[[], Tensor], stream: torch.cuda.Stream) -> None:
        self.work, self.stream = work, stream
        self.graph: torch.cuda.CUDAGraph | None = None
        self.calls = 0

    def __call__(self) -> Tensor:
        self.calls += 1
        if self.calls == 1:
            return self.work()
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with gc_disabled(), torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
                self.out = self.work()
        self.graph.replay()
        return self.out.clone()


def batch_leaves(value: object) -> list[object]:
    """The tensors of a batch, and its numbers, which a graph cannot change."""
    if is_dataclass(value) and not isinstance(value, type):
        return [leaf for part in field_values(value).values() for leaf in batch_leaves(part)]
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in batch_leaves(part)]
    return [value]
