"""The processes of a run under `torchrun`: process group, DDP and FSDP2, gradient synchronisation.

A single process is a group of one, for which every operation here is a no-op. Knows no task and no files.
"""

import contextlib
import os
import re
import time
import uuid
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, Protocol, TypeVar, cast, runtime_checkable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from regard.errors import RegardError
from regard.io.tensors import is_sharded
from regard.training.interrupt import Interrupted

T = TypeVar("T")
Parallel = Literal["ddp", "fsdp"]
STEP_TIMEOUT = timedelta(minutes=30)  # how long processes wait for each other within a step
HOST_TIMEOUT = timedelta(days=1)  # while one of them prepares data, or measures; one that ends is noticed at once


@dataclass(frozen=True)
class ProcessGroup:
    rank: int = 0
    size: int = 1
    local_rank: int = 0  # on this machine
    host_group: dist.ProcessGroup | None = None  # for messages between the hosts, which waits for no GPU

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, the one that writes files and prints."""
        return self.rank == 0

    def local_device(self, device: torch.device) -> torch.device:
        """This process's own GPU where there are several."""
        return torch.device("cuda", self.local_rank) if self.size > 1 and device.type == "cuda" else device

    def all_reduce_max(self, value: int) -> int:
        """The maximum over all processes; on the host, beside the GPU's work, so cheap enough for each step."""
        if self.size == 1:
            return value
        tensor = torch.tensor(value)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return int(tensor)

    def any_rank(self, flag: bool) -> bool:
        """True in all processes if it is in one of them."""
        return bool(self.all_reduce_max(int(flag)))

    def all_reduce_sum(self, value: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(value)
        return value

    def broadcast(self, value: T) -> T:
        """The main process's value, in all processes."""
        if self.size == 1:
            return value
        objects: list[T | None] = [value if self.is_main else None]
        dist.broadcast_object_list(objects, 0, group=self.host_group, device=torch.device("cpu"))
        return cast(T, objects[0])

    def all_gather(self, value: T) -> list[T]:
        """The values of all processes, in all of them."""
        if self.size == 1:
            return [value]
        values: list[T | None] = [None] * self.size
        dist.all_gather_object(values, value, group=self.host_group)
        return cast(list[T], values)

    def on_main(self, function: Callable[[], T]) -> T:
        """Calls the function in the main process alone; all processes get its result, or learn that it failed."""
        result: T | None = None
        problem: Exception | None = None
        if self.is_main:
            try:
                result = function()
            except (RegardError, OSError, Interrupted) as error:
                problem = error
        result, problem = self.broadcast((result, problem))
        if problem is None:
            return cast(T, result)
        if self.is_main or isinstance(problem, Interrupted):
            raise problem
        raise SystemExit(2)  # the main process prints why

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier(group=self.host_group)

    @contextlib.contextmanager
    def local_main_first(self) -> Iterator[None]:
        """The first process of each machine runs the block first, so that the others find its work done."""
        if self.local_rank:
            self.barrier()
        yield
        if not self.local_rank:
            self.barrier()


@contextlib.contextmanager
def process_group(device: torch.device) -> Iterator[ProcessGroup]:
    """The group of the processes that `torchrun` started, or of one process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or "RANK" not in os.environ:
        yield ProcessGroup()
        return
    rank, local_rank = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        _set_cuda_device(device, local_rank)
    try:
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(
            backend, store=_fresh_store(rank, size), rank=rank, world_size=size, timeout=STEP_TIMEOUT
        )
        yield ProcessGroup(rank, size, local_rank, dist.new_group(backend="gloo", timeout=HOST_TIMEOUT))
        dist.destroy_process_group()  # not after an error: that would wait for what the others never finish
    except (torch.OutOfMemoryError, MemoryError):
        raise RegardError(
            f"process {rank} of {size} ran out of memory; lower training.tokens_per_batch, and raise "
            "training.accumulate as much"
        ) from None
    except RuntimeError as error:
        if not _is_connection_error(error):
            raise
        reason = re.sub(r"^\[\S*\] |\. .*", "", str(error).partition("\n")[0])  # without gloo's own source and advice
        raise RegardError(f"process {rank} of {size} lost the others ({reason})") from None


def _fresh_store(rank: int, size: int) -> dist.Store:
    """A key-value store for the processes of this start alone.

    torchrun keeps one store over all restarts, and in it the addresses of processes that have ended: a new one would
    connect to them. So each process draws an id, and the first process gives every id that it finds the prefix of the
    new store, which is its own id.
    """
    store, _, _ = next(rendezvous("env://", timeout=STEP_TIMEOUT))
    own = uuid.uuid4().hex
    if rank:
        store.set(f"id/{rank}", own)
        prefix = store.get(f"prefix-for/{own}").decode()
        store.set(f"{prefix}/{rank}", "")
        return dist.PrefixStore(prefix, store)
    others = range(1, size)
    while not store.check([f"{own}/{other}" for other in others]):
        for other in others:
            store.set(f"prefix-for/{store.get(f'id/{other}').decode()}", own)
        time.sleep(0.01)
    return dist.PrefixStore(own, store)


def _set_cuda_device(device: torch.device, local_rank: int) -> None:
    if device.index is not None:
        raise RegardError(f"under torchrun every process takes a GPU of its own; write --device cuda, not {device}")
    if local_rank >= torch.cuda.device_count():
        raise RegardError(
            f"process {local_rank + 1} of this machine has no GPU of its own ({torch.cuda.device_count()} here); "
            "start torchrun with --nproc-per-node of at most that, or train with --device cpu"
        )
    torch.cuda.set_device(local_rank)


def _is_connection_error(error: RuntimeError) -> bool:
    """Whether this is how a process learns that another has ended; gloo has no class for it."""
    return isinstance(error, dist.DistError) or "gloo" in str(error) or "Connection" in str(error)


# --- models in several processes -----------------------------------------------------------------------------------


def parallelize(model: nn.Module, group: ProcessGroup, parallel: Parallel) -> nn.Module:
    """The model as all processes train it: a copy each (DDP), or each a shard (FSDP2)."""
    if group.size == 1:
        return model
    if parallel == "ddp":
        with warnings.catch_warnings(action="ignore"):  # of a name that is to change
            # Buffers are tables that each process can compute, and that grow when they must: nothing to broadcast.
            return DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (group.size,))
    for module in [*_layers(model), model]:
        fully_shard(module, mesh=mesh)
    return model


def _layers(model: nn.Module) -> list[nn.Module]:
    """Layers to gather one at a time; none where they share weights, as positions do: these belong to no one layer."""
    layers = {name: module for name, module in model.named_modules() if getattr(module, "is_layer", False)}
    owners: dict[Tensor, set[str]] = defaultdict(set)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owners[parameter].add(next((layer for layer in layers if name.startswith(f"{layer}.")), ""))
    return list(layers.values()) if all(len(names) == 1 for names in owners.values()) else []


@runtime_checkable
class ShardedModule(Protocol):
    """A module of FSDP2, whose own class is slow to import."""

    def set_requires_gradient_sync(self, enabled: bool, /) -> None: ...


@contextlib.contextmanager
def no_sync(model: nn.Module, enabled: bool) -> Iterator[None]:
    """No gradient synchronisation inside while `enabled`: gradients are averaged in a step's last backward pass."""
    if not enabled:
        yield
    elif isinstance(model, DistributedDataParallel):
        with model.no_sync():
            yield
    elif isinstance(model, ShardedModule):
        model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)
    else:
        yield


def full_tensor(tensor: Tensor) -> Tensor:
    """A sharded tensor in full; a collective call, which all processes must make."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor
