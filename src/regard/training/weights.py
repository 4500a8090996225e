"""Weights as safetensors: a file is whole or absent, and whatever is wrong with it is said in a sentence."""

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.errors import RegardError


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and saved buffer once, under its first name; shared matrices are not repeated."""
    kept = set(model.state_dict())
    buffers = {name: b for name, b in model.named_buffers() if name in kept}
    return {name: p.detach() for name, p in model.named_parameters()} | buffers


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """By way of a temporary file and one rename; what stood there before stays until the new file is whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, temporary)
        os.chmod(temporary, 0o666 & ~_umask())  # the library makes files that only their owner can read
        flush(temporary)
        os.replace(temporary, path)
    except SafetensorError as error:  # how the library reports a full disk
        raise OSError(f"{path}: {error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def flush(path: Path) -> None:
    """Make the file or folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file. Nothing else is read: pickles can run code when they are loaded."""
    try:
        with open(path, "rb") as file:
            head = file.read(9)
        # A safetensors file is a length in 8 bytes and then JSON; a zip or a bare pickle is how torch.save writes.
        if head[8:] != b"{" and (head[:2] == b"PK" or head[:1] == b"\x80"):
            raise RegardError(
                f"{path}: a pickled checkpoint, which can run code when it is loaded; only safetensors files are read"
            )
        return load_file(path)
    except FileNotFoundError:
        raise RegardError(f"{path}: there are no weights here") from None
    except OSError as error:
        raise RegardError(f"{path}: cannot be read ({error.strerror or error})") from None
    except SafetensorError as error:
        raise RegardError(f"{path}: truncated, or not a safetensors file ({error})") from None


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], origin: Path) -> None:
    """Into the model, all of them, or a sentence that names what does not fit."""
    own = weights_of(model)
    missing, foreign = sorted(set(own) - set(tensors)), sorted(set(tensors) - set(own))
    if missing or foreign:
        parts = [
            f"{len(names)} {word}, such as {names[0]}"
            for names, word in ((missing, "missing"), (foreign, "unknown"))
            if names
        ]
        raise RegardError(f"{origin}: the weights are of another model ({'; '.join(parts)})")
    with torch.no_grad():
        for name, value in own.items():
            if value.shape != tensors[name].shape:
                raise RegardError(
                    f"{origin}: {name} is {list(tensors[name].shape)} in the file, {list(value.shape)} in the model"
                )
            value.copy_(tensors[name])


def average(files: list[Path]) -> dict[str, Tensor]:
    """The mean of several weight files of one model, in float64 on the way."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for path in files:
        tensors = read_tensors(path)
        if total and set(tensors) != set(total):
            raise RegardError(f"{path}: its weights have other names than those of {files[0]}")
        for name, value in tensors.items():
            kinds[name] = value.dtype
            if name in total and total[name].shape != value.shape:
                raise RegardError(f"{path}: {name} has another shape than in {files[0]}")
            total[name] = total[name] + value.double() if name in total else value.double()
    return {name: (value / len(files)).to(kinds[name]) for name, value in total.items()}
