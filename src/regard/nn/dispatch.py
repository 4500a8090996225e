"""Fast twins of the plain functions here: where they may serve, and how to do without them.

`regard.accel` registers its functions under the names of the plain ones; `fast(name, x)` gives one, or None, and then
the plain function computes the same with torch's own operations. This module knows none of them.
"""

import contextlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor

DEVICES = {"cuda"}  # whose code is a GPU's; a test puts "cpu" there, where Triton interprets
_fast: dict[str, Callable[..., Any]] = {}
_disabled = 0


# --- devices -------------------------------------------------------------------------------------------------------


def on_gpu(device: torch.device) -> bool:
    """Whether the code written for GPUs serves this device, with or without our own kernels."""
    return device.type in DEVICES


def on_cpu(device: torch.device) -> bool:
    """Whether the code written for CPUs serves this device."""
    return device.type == "cpu" and not on_gpu(device)


# --- precision -----------------------------------------------------------------------------------------------------


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """What autocast makes products of on a GPU; None where it is off."""
    kind = device.type
    return torch.get_autocast_dtype(kind) if on_gpu(device) and torch.is_autocast_enabled(kind) else None


def product_dtype(x: Tensor) -> torch.dtype:
    """What matrix products are made of here: autocast's type, where it is on."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


@contextlib.contextmanager
def no_autocast() -> Iterator[None]:
    """Every operation in the type of its inputs, within: captured steps trust that types agree."""
    with contextlib.ExitStack() as stack:
        for kind in filter(torch.is_autocast_enabled, DEVICES):
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


# --- gradients -----------------------------------------------------------------------------------------------------


class GradientContext(Protocol):
    """The `ctx` of an autograd function; a subclass for each names what else is kept for its gradient."""

    saved_tensors: tuple[Tensor, ...]
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor | None) -> None: ...


# --- fast twins ----------------------------------------------------------------------------------------------------


def register(**functions: Callable[..., Any]) -> None:
    """Functions by the names under which `fast` gives them."""
    _fast.update(functions)


def fast(name: str, x: Tensor) -> Callable[..., Any] | None:
    """The fast twin of a function for a tensor like x, while gradients are computed; None: compute it plainly."""
    return _fast.get(name) if _fast and usable(x) else None


def registered(name: str) -> Callable[..., Any]:
    return _fast[name]


def usable(x: Tensor) -> bool:
    """While gradients are computed: without them, decoding launches small kernels, which torch does faster."""
    return torch.is_grad_enabled() and available(x)


def available(x: Tensor) -> bool:
    """Whether there are kernels for it; captured launches cost the host nothing."""
    if _disabled or not _fast or x.dtype == torch.float64:
        return False
    return on_gpu(x.device) and (not x.is_cuda or _capable(x.device))


@lru_cache
def _capable(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)  # tensor cores that know bfloat16


@contextlib.contextmanager
def disabled(wanted: bool = True) -> Iterator[None]:
    """Torch's own operations alone, within."""
    global _disabled
    _disabled += wanted
    try:
        yield
    finally:
        _disabled -= wanted
