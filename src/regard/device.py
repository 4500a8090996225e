"""Which device work is done on: chosen by name, told by name."""

import contextlib
import gc
import platform
from collections.abc import Iterator

import torch

from regard.errors import RegardError, plural


def pick_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise RegardError("device cuda was asked for, but torch sees no GPU")
    try:
        return torch.device(name)
    except RuntimeError:
        raise RegardError(f"device is {name!r}; write auto, cpu, cuda or cuda:1") from None


def has_bf16(device: torch.device) -> bool:
    """Whether torch knows that the device multiplies in bf16 by itself; elsewhere it may be slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {plural(threads, 'thread')}"


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """While launches are recorded: an older recording that is let go of in the middle would spoil the new one."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
