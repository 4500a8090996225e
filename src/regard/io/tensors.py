"""Tensors in safetensors files: written atomically, whole or in shards, and read with a sentence for what is wrong."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from regard.errors import RegardError
from regard.io.atomic import fsync
from regard.io.files import DamagedFile, open_regular
from regard.io.int8 import from_int8
from regard.io.manifest import verifications

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def unique_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and saved buffer once, under its first name; shared matrices are not repeated."""
    kept = set(model.state_dict())
    buffers = {name: b for name, b in model.named_buffers() if name in kept}
    return {name: p.detach() for name, p in model.named_parameters()} | buffers


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """An atomic write; `metadata` is the file's own, of names and texts."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, temporary, metadata)
        os.chmod(temporary, 0o666 & ~_umask())  # the library makes files that only their owner can read
        fsync(temporary)
        os.replace(temporary, path)
    except SafetensorError as error:  # how the library reports a full disk
        raise OSError(f"{path}: {error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file; those stored in 8 bits as float32. Nothing else is read: pickles can run code.

    They are mapped into memory, or lie in that which a verification around this compares with a manifest.
    """
    with _reading(path):
        for verification in verifications():
            if (file := verification.tensor_file(path)) is not None:
                return from_int8({name: _to_tensor(*tensor) for name, tensor in file.tensors().items()}, path)
        stored = load_file(path)
    return from_int8(stored, path)


DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "BOOL": torch.bool,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
}  # fmt: skip


def _to_tensor(dtype: str, shape: list[int], data: memoryview) -> Tensor:
    flat = torch.frombuffer(data, dtype=DTYPES[dtype]) if len(data) else torch.empty(0, dtype=DTYPES[dtype])
    return flat.reshape(shape)


def tensor_shapes(path: Path) -> dict[str, list[int]]:
    """The shapes of a safetensors file, from its header alone."""
    with _reading(path), safe_open(path, "pt") as file:
        return {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Errors of a safetensors file as sentences."""
    try:
        with open_regular(path) as file:
            head = file.read(9)
        # A safetensors file is a length in 8 bytes and then JSON; a zip or a bare pickle is how torch.save writes.
        if head[8:] != b"{" and (head[:2] == b"PK" or head[:1] == b"\x80"):
            raise RegardError(
                f"{path}: a pickled checkpoint, which can run code when it is loaded; only safetensors files are read"
            )
        yield
    except FileNotFoundError:
        raise DamagedFile(f"{path}: there are no weights here") from None
    except OSError as error:
        raise RegardError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (SafetensorError, ValueError, RuntimeError, KeyError):  # a header of impossible shapes or types, too
        raise DamagedFile(f"{path}: truncated, or not a safetensors file") from None


# --- shards: the rows of every tensor that one of several processes holds (FSDP2) -----------------------------------


def is_sharded(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether other processes hold the rest: FSDP2's parameters, and an optimiser's state of them."""
    return hasattr(tensor, "to_local")  # the class itself takes as long to import as torch


def local_shard(tensor: Tensor) -> Tensor:
    """This process's rows; the tensor itself where it is not sharded."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def write_sharded(folder: Path, kind: str, tensors: Mapping[str, Tensor], rank: int, size: int) -> list[str]:
    """This process's file of `kind`: all tensors from the first process, or its rows where tensors are sharded.

    Returns the name of the file, if there is one.
    """
    file = f"{kind}.safetensors"
    if any(map(is_sharded, tensors.values())):
        shards = {name: local_shard(t) for name, t in tensors.items() if is_sharded(t) or rank == 0}
        file = f"{kind}-{rank + 1:05}-of-{size:05}.safetensors"
        tensors = {name: t for name, t in shards.items() if t.dim() == 0 or len(t)}
    elif rank:
        return []
    write_tensors(folder / file, tensors)
    return [file]


def sharded_files(folder: Path, kind: str) -> list[Path]:
    """The files of `kind` in a folder, whatever number of processes wrote them."""
    files = sorted(folder.glob(f"{kind}-*-of-*.safetensors"))
    if not files:
        return [folder / f"{kind}.safetensors"]
    count = files[0].stem.rpartition("-")[2]
    if not count.isdigit() or len(files) != int(count):
        raise DamagedFile(f"{folder}: {len(files)} of {count.lstrip('0')} files of {kind} are there")
    return files


def read_sharded(folder: Path, kind: str) -> dict[str, Tensor]:
    """All tensors of `kind` in a folder, in full."""
    rows: dict[str, list[Tensor]] = {}
    for path in sharded_files(folder, kind):
        for name, tensor in read_tensors(path).items():
            rows.setdefault(name, []).append(tensor)
    return {name: torch.cat(tensors) if len(tensors) > 1 else tensors[0] for name, tensors in rows.items()}


def copy_into(tensor: Tensor, full: Tensor) -> None:
    """Copies a full tensor into one that may be a shard of it."""
    if not is_sharded(tensor):
        tensor.copy_(full)
        return
    shard, mesh = local_shard(tensor), tensor.device_mesh
    start = mesh.get_local_rank() * -(-len(full) // mesh.size())  # rows are dealt out evenly, the last get fewer
    shard.copy_(full[start : start + len(shard)])


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor], origin: Path, private: bool = False) -> None:
    """Loads all weights of a model, strictly; the error names `origin` and what does not fit.

    The model keeps `private` tensors, which nobody else uses, instead of copies of them.
    """
    own, owners = unique_state_dict(model), dict(chain(model.named_parameters(), model.named_buffers()))
    missing, unknown = sorted(set(own) - set(tensors)), sorted(set(tensors) - set(own))
    if missing or unknown:
        problems = [
            f"{len(names)} {word}, such as {names[0]}"
            for names, word in ((missing, "missing"), (unknown, "unknown"))
            if names
        ]
        raise RegardError(f"{origin}: the weights are of another model ({'; '.join(problems)})")
    with torch.no_grad():
        for name, value in own.items():
            if value.shape != tensors[name].shape:
                raise RegardError(
                    f"{origin}: {name} is {list(tensors[name].shape)} in the file, {list(value.shape)} in the model"
                )
            check_finite(name, tensors[name], origin)
            if private and _can_replace(value, tensors[name]):
                owners[name].data = tensors[name]
            else:
                copy_into(value, tensors[name])


def _can_replace(value: Tensor, tensor: Tensor) -> bool:
    """Whether a model can have the tensor itself in the place of a value of its own."""
    return (
        value.dtype == tensor.dtype
        and value.device == tensor.device
        and value.is_contiguous()
        and value.untyped_storage().nbytes() == value.nbytes  # not a part of another one
        and not is_sharded(value)
    )


def check_finite(name: str, tensor: Tensor, origin: Path) -> None:
    """Raises RegardError for weights with NaN or infinity: a sum shows them, and is quick, but may overflow."""
    if not (bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())):
        raise RegardError(f"{origin}: {name} holds numbers that are not finite; these weights cannot be used")


def average_checkpoints(paths: list[Path]) -> dict[str, Tensor]:
    """The mean weights of several files or checkpoints of one model, computed in float64."""
    total: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    for path in paths:
        tensors = read_sharded(path, "model") if path.is_dir() else read_tensors(path)
        if total and set(tensors) != set(total):
            raise RegardError(f"{path}: its weights have other names than those of {paths[0]}")
        for name, value in tensors.items():
            dtypes[name] = value.dtype
            if name in total and total[name].shape != value.shape:
                raise RegardError(f"{path}: {name} has another shape than in {paths[0]}")
            total[name] = total[name] + value.double() if name in total else value.double()
    return {name: (value / len(paths)).to(dtypes[name]) for name, value in total.items()}
