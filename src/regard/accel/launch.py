"""Launches of kernels: random seeds, block sizes, the device of their tensors."""

import contextlib

import torch
from torch import Tensor

_step_seeds: dict[torch.device, Tensor] = {}


def call_seed(dropout: float) -> int:
    """A seed of this call's own, drawn from torch's generator on the host; 0 without dropout."""
    return int(torch.randint(2**31 - 1, ())) if dropout else 0


def step_seed(like: Tensor) -> Tensor:
    """A seed on the device, the same for all calls; it is changed before captured launches are replayed."""
    if like.device not in _step_seeds:
        with torch.inference_mode(False):  # decoding may be first; training changes it
            _step_seeds[like.device] = torch.zeros((), dtype=torch.int32, device=like.device)
    return _step_seeds[like.device]


def power_of_2(n: int, least: int = 16) -> int:
    """The least power of two that has room for n."""
    return max(least, 1 << (n - 1).bit_length())


def device_of(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """A kernel is launched on the device of its tensors."""
    return torch.cuda.device_of(x) if x.is_cuda else contextlib.nullcontext()
