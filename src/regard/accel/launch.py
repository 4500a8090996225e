"""What every launch of a kernel needs: random seeds, round sizes, the device of its tensors."""

import contextlib

import torch
from torch import Tensor

_seeds: dict[torch.device, Tensor] = {}


def salt(dropout: float) -> int:
    """What tells the random numbers of this call from those of others, drawn from torch's generator on the host."""
    return int(torch.randint(2**31 - 1, ())) if dropout else 0


def seed(like: Tensor) -> Tensor:
    """On the device, and the same for all calls: whoever replays captured launches changes it."""
    if like.device not in _seeds:
        with torch.inference_mode(False):  # a search may ask first; training changes it
            _seeds[like.device] = torch.zeros((), dtype=torch.int32, device=like.device)
    return _seeds[like.device]


def power(n: int, least: int = 16) -> int:
    """The least power of two that has room for n."""
    return max(least, 1 << (n - 1).bit_length())


def on(x: Tensor) -> contextlib.AbstractContextManager[object]:
    """A kernel is launched on the device of its tensors."""
    return torch.cuda.device_of(x) if x.is_cuda else contextlib.nullcontext()
