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


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: dict[str, str] | None = None) -> None:
    """By way of a temporary file and one rename; what stood there before stays until the new file is whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, temporary, about)
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


# --- in parts: what each of several processes holds of every tensor ------------------------------------------------


def is_part(tensor: Tensor) -> bool:
    """Whether other processes hold the rest of it (FSDP2's parameters, and what an optimiser keeps of them)."""
    return hasattr(tensor, "to_local")


def local(tensor: Tensor) -> Tensor:
    """This process's rows of it, or all where there are no others."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def write_parts(folder: Path, kind: str, tensors: Mapping[str, Tensor], rank: int, size: int) -> None:
    """This process's file of `kind`: all of it from the first process, or its own rows where tensors are in parts."""
    if not any(map(is_part, tensors.values())):
        if rank == 0:
            write_tensors(folder / f"{kind}.safetensors", tensors)
        return
    mine = {name: local(t) for name, t in tensors.items() if is_part(t) or rank == 0}
    name = f"{kind}-{rank + 1:05}-of-{size:05}.safetensors"
    write_tensors(folder / name, {name: t for name, t in mine.items() if t.dim() == 0 or len(t)})


def read_whole(folder: Path, kind: str) -> dict[str, Tensor]:
    """All tensors of `kind` in a folder, whatever number of processes wrote them: rows are put end to end."""
    parts = sorted(folder.glob(f"{kind}-*-of-*.safetensors"))
    if not parts:
        return read_tensors(folder / f"{kind}.safetensors")
    count = int(parts[0].stem.rpartition("-")[2])
    if len(parts) != count:
        raise RegardError(f"{folder}: {len(parts)} of {count} files of {kind} are there")
    rows: dict[str, list[Tensor]] = {}
    for path in parts:
        for name, tensor in read_tensors(path).items():
            rows.setdefault(name, []).append(tensor)
    return {name: torch.cat(tensors) if len(tensors) > 1 else tensors[0] for name, tensors in rows.items()}


def fill(own: Tensor, value: Tensor) -> None:
    """A whole tensor into one that may be this process's part of it."""
    if not is_part(own):
        own.copy_(value)
        return
    part, mesh = local(own), own.device_mesh  # type: ignore[attr-defined]
    start = mesh.get_local_rank() * -(-len(value) // mesh.size())  # rows are dealt out evenly, the last get fewer
    part.copy_(value[start : start + len(part)])


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
            fill(value, tensors[name])


def average(places: list[Path]) -> dict[str, Tensor]:
    """The mean of several weights of one model, files or checkpoints, in float64 on the way."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for path in places:
        tensors = read_whole(path, "model") if path.is_dir() else read_tensors(path)
        if total and set(tensors) != set(total):
            raise RegardError(f"{path}: its weights have other names than those of {places[0]}")
        for name, value in tensors.items():
            kinds[name] = value.dtype
            if name in total and total[name].shape != value.shape:
                raise RegardError(f"{path}: {name} has another shape than in {places[0]}")
            total[name] = total[name] + value.double() if name in total else value.double()
    return {name: (value / len(places)).to(kinds[name]) for name, value in total.items()}
