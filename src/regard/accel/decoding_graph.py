"""Decoding steps in fixed storage: recorded once as a CUDA graph, and replayed for every further step.

A graph knows addresses and shapes, so a step must end with every tensor where it began (`FixedStorage`), and attention
must read as many positions as a bucket has; those beyond a row's own past are masked. Without a GPU,
`FixedStorageRunner` runs such steps one by one: the plain twin, by which they can be compared with ordinary ones.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.device import gc_disabled

SMALLEST = 16  # positions of the first bucket


def bucket(count: int, smallest: int = SMALLEST) -> int:
    """The next power of two, so that few graphs serve all lengths."""
    return max(smallest, 1 << (count - 1).bit_length())


def attention_width(count: int) -> int:
    """The next of 2ⁿ and 3·2ⁿ⁻¹: what attention reads grows in smaller leaps, since every step pays for it."""
    most = bucket(count)
    return 3 * most // 4 if most > 2 * SMALLEST and count <= 3 * most // 4 else most


class StepPositions(Protocol):
    """How many tokens rows have read, as far as it is known without asking the device."""

    @property
    def filled(self) -> int:
        """No row has read more."""

    @property
    def length(self) -> int:
        """Room in a row."""

    def advance_bounds(self, steps: int, whole: bool = True) -> None:
        """The device has read `steps` more tokens; if not `whole`, of which each row kept some."""

    def assume_filled(self, filled: int) -> AbstractContextManager[None]:
        """As if `filled` were this, within."""


class _HasPositions(Protocol):
    @property
    def cache_positions(self) -> StepPositions: ...


class Steppable(Protocol):
    """An object that holds all that a step changes, and whose `advance` is the step."""

    @property
    def state(self) -> _HasPositions: ...

    @property
    def width(self) -> int:
        """Tokens of each row that it reads."""

    def advance(self) -> None: ...


class FixedStorageRunner:
    """Runs steps in fixed storage."""

    def run(self, step: Steppable) -> None:
        positions = step.state.cache_positions
        width = min(attention_width(positions.filled + step.width), positions.length)  # the longest row's end, at most
        self.run_at_width(step, width)
        positions.advance_bounds(step.width, whole=step.width == 1)

    def run_at_width(self, step: Steppable, width: int) -> None:
        with step.state.cache_positions.assume_filled(width - step.width):
            storage = FixedStorage(step)
            step.advance()
            storage.copy_back()


class CudaGraphRunner(FixedStorageRunner):
    """Runs steps as CUDA graphs, one for each bucket; they share memory, since all they leave is in fixed storage."""

    def __init__(self) -> None:
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.failure = ""  # why the step could not be captured; it then runs as it is

    def run_at_width(self, step: Steppable, width: int) -> None:
        if width not in self.graphs and not self.failure:
            self._capture(step, width)
        if self.failure:
            super().run_at_width(step, width)
        else:
            self.graphs[width].replay()

    def _capture(self, step: Steppable, width: int) -> None:
        storage = FixedStorage(step)
        before = [tensor.clone() for tensor in storage.tensors]
        warmup = torch.cuda.Stream()
        warmup.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warmup):  # libraries make what they need when they are first called
            super().run_at_width(step, width)
        torch.cuda.current_stream().wait_stream(warmup)
        for tensor, value in zip(storage.tensors, before, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        try:
            with gc_disabled(), torch.cuda.graph(graph, pool=self.pool):
                super().run_at_width(step, width)
            self.graphs[width] = graph
        except RuntimeError as error:  # the model asks the device for a number, or moves data to the host
            self.failure = str(error).splitlines()[0]
            storage.restore()


RUNNERS: dict[str, Callable[[], FixedStorageRunner]] = {"cuda": CudaGraphRunner}  # by device; elsewhere none is used


class FixedStorage:
    """Every tensor in an object, with its container, so that what replaces it can be copied back into it."""

    def __init__(self, root: object) -> None:
        self.slots = list(_tensor_slots(root))
        self.tensors: list[Tensor] = [container[name] for container, name in self.slots]

    def copy_back(self) -> None:
        """Copy new tensors into the old ones, and restore these."""
        pairs = [(container[name], tensor) for (container, name), tensor in zip(self.slots, self.tensors, strict=True)]
        storage = {tensor.untyped_storage().data_ptr() for tensor in self.tensors}
        moved = [  # a view of old storage might be overwritten before its turn comes
            (new.clone() if new.untyped_storage().data_ptr() in storage else new, tensor)
            for new, tensor in pairs
            if new is not tensor
        ]
        by_dtype: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
        for new, tensor in moved:
            if new.shape != tensor.shape or new.dtype != tensor.dtype:
                raise RuntimeError(f"a step made {list(tensor.shape)} into {list(new.shape)}")
            by_dtype.setdefault(new.dtype, []).append((tensor, new.contiguous()))
        for pairs in by_dtype.values():  # many small tensors in one launch
            torch._foreach_copy_([tensor for tensor, _ in pairs], [new for _, new in pairs])
        self.restore()

    def restore(self) -> None:
        for (container, name), tensor in zip(self.slots, self.tensors, strict=True):
            container[name] = tensor


def _tensor_slots(root: object) -> Iterator[tuple[Any, Any]]:
    """Containers (lists, dictionaries, attributes of objects) and keys of tensors, each once; modules are left out."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        part = todo.pop()
        if id(part) in seen or isinstance(part, nn.Module | type):
            continue
        seen.add(id(part))
        if isinstance(part, tuple):  # its tensors cannot be replaced, so a step cannot change them either
            todo.extend(each for each in part if not isinstance(each, Tensor))
            continue
        container: Any = part if isinstance(part, dict | list) else getattr(part, "__dict__", {})
        for name, value in enumerate(container) if isinstance(container, list) else container.items():
            if isinstance(value, Tensor):
                yield container, name
            elif isinstance(value, tuple | list | dict) or hasattr(value, "__dict__"):
                todo.append(value)
