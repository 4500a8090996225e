"""The compiled step: everything a step does, recorded once as a CUDA graph and replayed for every further step.

A graph knows addresses and shapes, so a step must end with every tensor where it began (`settle`), and attention must
look at as many places as a bucket has; what lies beyond a row's own past is masked. Without a GPU, `Fixed` runs such
steps one by one: the plain twin, by which they can be compared with ordinary ones.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from regard.device import gc_disabled

SMALLEST = 16  # places that the first bucket has


def bucket(count: int, smallest: int = SMALLEST) -> int:
    """The next power of two, so that few graphs serve all lengths."""
    return max(smallest, 1 << (count - 1).bit_length())


def reach(count: int) -> int:
    """The next of 2ⁿ and 3·2ⁿ⁻¹: what attention looks at grows in smaller leaps, since every step pays for it."""
    most = bucket(count)
    return 3 * most // 4 if most > 2 * SMALLEST and count <= 3 * most // 4 else most


class Steps(Protocol):
    """What is stepped: an object that holds all that changes, and whose `advance` changes it."""

    state: Any

    def advance(self) -> None: ...


class Fixed:
    """Steps in fixed storage."""

    def run(self, step: Steps) -> None:
        places = step.state.cache_positions
        width = min(reach(places.filled + 1), places.length)  # how far the longest row will have come, at most
        self.play(step, width)
        places.advance_bounds(1)

    def play(self, step: Steps, width: int) -> None:
        with step.state.cache_positions.assume_filled(width - 1):
            held = Held(step)
            step.advance()
            held.settle()


class Captured(Fixed):
    """Steps as CUDA graphs, one for each bucket; they share memory, since all they leave is in fixed storage."""

    def __init__(self) -> None:
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.why = ""  # what kept the step from being captured; it then runs as it is

    def play(self, step: Steps, width: int) -> None:
        if width not in self.graphs and not self.why:
            self._capture(step, width)
        if self.why:
            super().play(step, width)
        else:
            self.graphs[width].replay()

    def _capture(self, step: Steps, width: int) -> None:
        held = Held(step)
        before = [tensor.clone() for tensor in held.tensors]
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # once for nothing: libraries make what they need when they are first called
            super().play(step, width)
        torch.cuda.current_stream().wait_stream(aside)
        for tensor, value in zip(held.tensors, before, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        try:
            with gc_disabled(), torch.cuda.graph(graph, pool=self.pool):
                super().play(step, width)
            self.graphs[width] = graph
        except RuntimeError as error:  # the model asks the device for a number, or moves data to the host
            self.why = str(error).splitlines()[0]
            held.put_back()


COMPILED: dict[str, Callable[[], Fixed]] = {"cuda": Captured}  # by the kind of device; elsewhere steps run as they are


class Held:
    """Every tensor in an object, and where it hangs, so that what took its place can be copied back into it."""

    def __init__(self, root: Any) -> None:
        self.slots = list(_slots(root))  # (container, name or index)
        self.tensors = [_get(*slot) for slot in self.slots]

    def settle(self) -> None:
        """Copy what is new into what is held, and hang that up again."""
        pairs = [(_get(*slot), tensor) for slot, tensor in zip(self.slots, self.tensors, strict=True)]
        storage = {tensor.untyped_storage().data_ptr() for tensor in self.tensors}
        moved = [  # a view of held storage might be overwritten before its turn comes
            (new.clone() if new.untyped_storage().data_ptr() in storage else new, tensor)
            for new, tensor in pairs
            if new is not tensor
        ]
        kinds: dict[torch.dtype, list[tuple[Tensor, Tensor]]] = {}
        for new, tensor in moved:
            if new.shape != tensor.shape or new.dtype != tensor.dtype:
                raise RuntimeError(f"a step made {list(tensor.shape)} into {list(new.shape)}")
            kinds.setdefault(new.dtype, []).append((tensor, new.contiguous()))
        for pairs in kinds.values():  # many small tensors in one launch
            torch._foreach_copy_([tensor for tensor, _ in pairs], [new for _, new in pairs])
        self.put_back()

    def put_back(self) -> None:
        for (container, name), tensor in zip(self.slots, self.tensors, strict=True):
            if isinstance(container, dict | list):
                container[name] = tensor
            else:
                setattr(container, name, tensor)


def _get(container: Any, name: Any) -> Any:
    return container[name] if isinstance(container, dict | list) else getattr(container, name)


def _slots(root: Any) -> Iterator[tuple[Any, Any]]:
    """Where tensors hang in objects, lists, tuples and dictionaries, each object once; modules have weights alone."""
    seen: set[int] = set()
    todo = [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, nn.Module | type):
            continue
        seen.add(id(thing))
        if isinstance(thing, tuple):  # its tensors cannot be replaced, so a step cannot change them either
            todo.extend(part for part in thing if not isinstance(part, Tensor))
            continue
        holder = thing if isinstance(thing, dict | list) else getattr(thing, "__dict__", {})
        for name, value in enumerate(holder) if isinstance(holder, list) else holder.items():
            if isinstance(value, Tensor):
                yield thing, name
            elif isinstance(value, tuple | list | dict) or hasattr(value, "__dict__"):
                todo.append(value)
