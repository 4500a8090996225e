"""Devices: chosen by name, their names, memory and bf16 support."""

import contextlib
import gc
import os
import platform
from collections.abc import Iterator

import torch

from regard.errors import RegardError, plural


def pick_device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda", "mps"):
        raise RegardError(f"device is {name!r}; write auto, cpu, cuda, cuda:1 or mps")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise RegardError(f"device {name} was asked for, but torch sees no GPU; write cpu, or auto")
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        raise RegardError(f"device {name} was asked for, but torch sees {plural(count, 'GPU')}, counted from cuda:0")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise RegardError("device mps was asked for, but torch has no Apple GPU here; write cpu, or auto")
    return device


def total_memory(device: torch.device) -> int | None:
    """Bytes of the device's memory; None where that is not known."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    with contextlib.suppress(AttributeError, ValueError, OSError):  # not on Windows
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def check_bf16(device: torch.device, key: str) -> None:
    """Raise RegardError on a GPU from before bf16 (compute capability 8.0), which torch would emulate, or refuse."""
    if device.type == "cuda" and not has_bf16(device):
        major, minor = torch.cuda.get_device_capability(device)
        raise RegardError(
            f"{key} is bf16, which takes a GPU of compute capability 8.0 or more, and {device_name(device)} has "
            f"{major}.{minor}; write {key}=float32"
        )


def has_bf16(device: torch.device) -> bool:
    """Whether torch knows that the hardware multiplies in bf16; elsewhere it may be slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "mps":
        return False
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    if device.type == "mps":
        return "Apple GPU"
    threads = torch.get_num_threads()
    return f"{platform.machine()} CPU, {plural(threads, 'thread')}"


@contextlib.contextmanager
def gc_disabled() -> Iterator[None]:
    """No garbage collection inside: a CUDA graph that is freed while another is captured would spoil that one."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
