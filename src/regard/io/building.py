"""A model built for weights that are in files: no more memory than these have, and no initial values."""

import contextlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode

from regard.errors import RegardError
from regard.io.low_rank import base_of
from regard.io.run_folder import WEIGHTS
from regard.io.tensors import sharded_files, tensor_shapes

TABLES = 1 << 25  # numbers that a model may allocate beside its weights: position vectors, masks
TENSORS = 2_000  # and how many tensors
DRAWING = {
    "normal_",
    "uniform_",
    "trunc_normal_",
    "xavier_uniform_",
    "xavier_normal_",
    "kaiming_uniform_",
    "orthogonal_",
}
ALLOCATING = {torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.arange, torch.eye}


@contextlib.contextmanager
def building_for(folder: Path, config: Path) -> Iterator[None]:
    """The block builds the model whose weights are in a folder.

    Raises RegardError where the config describes a larger model than that of the weights, before it takes memory.
    Parameters keep what is in their memory, since all of them will be loaded.
    """
    base = base_of(folder)
    files = [*sharded_files(folder, "model"), *([base / WEIGHTS] if base else [])]
    shapes = [shape for path in files for shape in tensor_shapes(path).values()]
    numbers = sum(map(math.prod, shapes))
    have = f"{len(shapes):,} tensors with {numbers:,} numbers in all"
    with _limited(_Building(2 * numbers + TABLES, 4 * len(shapes) + TENSORS, draws=False), config, have):
        yield


@contextlib.contextmanager
def importing_from(folder: Path, config: Path) -> Iterator[None]:
    """The block makes a model of another library's weights; of any format, so that their size is that of the files."""
    size = sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".safetensors", ".bin"))
    with _limited(_Building(size + TABLES, 100 * TENSORS, draws=True), config, f"{size:,} bytes"):
        yield


@contextlib.contextmanager
def _limited(mode: "_Building", config: Path, have: str) -> Iterator[None]:
    try:
        with mode:
            yield
    except (_TooLarge, MemoryError, OverflowError):
        raise RegardError(f"{config}: it describes a larger model than its weights, which are {have}") from None


class _TooLarge(Exception):
    pass


class _Building(TorchFunctionMode):
    """Counts what is allocated, and `draws` values for parameters or leaves them as they are."""

    def __init__(self, numbers: int, tensors: int, draws: bool) -> None:
        super().__init__()
        self.numbers, self.tensors, self.draws = numbers, tensors, draws

    def __torch_function__(
        self, func: Callable[..., object], types: object, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        kwargs = kwargs or {}
        if func in ALLOCATING:
            self.numbers -= _requested(func, args, kwargs)
            self.tensors -= 1
            if self.numbers < 0 or self.tensors < 0:
                raise _TooLarge
        elif not self.draws and kwargs.get("generator") is None and getattr(func, "__name__", "") in DRAWING:
            # What a generator draws is the same each time, such as a random pattern: all else comes from the weights.
            tensor = args[0] if args else kwargs["tensor"]  # torch.nn.init gives its arguments by name
            assert isinstance(tensor, torch.Tensor)
            return tensor
        return func(*args, **kwargs)


def _requested(func: object, args: tuple, kwargs: dict) -> int:
    """How many numbers a call of a factory function asks for."""
    sizes = [kwargs[name] for name in ("size", "end", "n") if name in kwargs] or list(args)
    if sizes and isinstance(sizes[0], list | tuple):
        sizes = list(sizes[0])
    elif func is torch.arange:
        sizes = sizes[:2][-1:]
    counts = [abs(int(size)) for size in sizes if isinstance(size, int | float)]
    return math.prod(counts) if counts else 0
