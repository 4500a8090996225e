"""One switch for our own GPU kernels: where they may be used, and how to do without them.

Each has a plain twin of torch operations that computes the same function; `plain()` is how to see that.
"""

import contextlib
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

TRITON = find_spec("triton") is not None
DEVICES = {"cuda"}  # whose code is a GPU's; a test puts "cpu" there, where Triton interprets
_plain = 0
_seeds: dict[torch.device, Tensor] = {}


def on_gpu(device: torch.device) -> bool:
    """Whether the code written for GPUs serves this device, with or without our own kernels."""
    return device.type in DEVICES


def on_cpu(device: torch.device) -> bool:
    """Whether the code written for CPUs does."""
    return device.type == "cpu" and not on_gpu(device)


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """What autocast makes products of on a GPU; None where it is off."""
    kind = device.type
    return torch.get_autocast_dtype(kind) if on_gpu(device) and torch.is_autocast_enabled(kind) else None


@contextlib.contextmanager
def no_autocast() -> Iterator[None]:
    """Every operation in the type of what it is given, within: steps that are recorded trust that types agree."""
    with contextlib.ExitStack() as stack:
        for kind in filter(torch.is_autocast_enabled, DEVICES):
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def usable(x: Tensor) -> bool:
    """While learning: where nothing is learned, a search launches small kernels, which torch does faster."""
    return torch.is_grad_enabled() and available(x)


def available(x: Tensor) -> bool:
    """Whether there are any for it; launches that are recorded cost the host nothing."""
    if _plain or not TRITON or x.dtype == torch.float64:
        return False
    return on_gpu(x.device) and (not x.is_cuda or _capable(x.device))


@lru_cache
def _capable(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)  # tensor cores that know bfloat16


@contextlib.contextmanager
def plain(wanted: bool = True) -> Iterator[None]:
    """Torch's own operations alone, within."""
    global _plain
    _plain += wanted
    try:
        yield
    finally:
        _plain -= wanted


def salt(dropout: float) -> int:
    """What tells the noise of this call from that of others, drawn from torch's generator on the host."""
    return int(torch.randint(2**31 - 1, ())) if dropout else 0


def seed(like: Tensor) -> Tensor:
    """On the device, and the same for all calls: whoever repeats recorded launches changes it."""
    if like.device not in _seeds:
        with torch.inference_mode(False):  # whoever asks first may search; who learns changes it
            _seeds[like.device] = torch.zeros((), dtype=torch.int32, device=like.device)
    return _seeds[like.device]


def product_dtype(x: Tensor) -> torch.dtype:
    """What matrix products are made of here: autocast's type, where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def power(n: int, least: int = 16) -> int:
    """The least power of two that has room for n."""
    return max(least, 1 << (n - 1).bit_length())


def on(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """A kernel is launched on the device that its tensors are on."""
    return torch.cuda.device_of(x) if x.is_cuda else contextlib.nullcontext()
