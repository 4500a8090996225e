"""The processes of a run, as `torchrun` started them: who they are, what they agree on, how gradients meet.

One process is a world of one, for which everything here is nothing. Knows no task and no files.
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
from typing import Any, Literal, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from regard.errors import RegardError
from regard.training.interrupt import Interrupt

T = TypeVar("T")
Parallel = Literal["ddp", "fsdp"]
STEP = timedelta(minutes=30)  # how long processes wait for each other within a step
PATIENCE = timedelta(days=1)  # while one of them prepares data, or measures; one that ends is noticed at once


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1
    local: int = 0  # rank on this machine
    talk: Any = None  # a group for messages between the hosts, which waits for no GPU

    @property
    def main(self) -> bool:
        """The one that writes and speaks."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """This process's own GPU where there are several."""
        return torch.device("cuda", self.local) if self.size > 1 and device.type == "cuda" else device

    def most(self, value: int) -> int:
        """The largest that any process has; small, and made once a step: on the host, beside the GPU's work."""
        if self.size == 1:
            return value
        box = torch.tensor(value)
        dist.all_reduce(box, dist.ReduceOp.MAX)
        return int(box)

    def agree(self, wanted: bool) -> bool:
        """True for all as soon as it is for one."""
        return bool(self.most(int(wanted)))

    def told(self, value: T) -> T:
        """What the main process has, for all."""
        if self.size == 1:
            return value
        box: list[Any] = [value if self.main else None]
        dist.broadcast_object_list(box, 0, group=self.talk, device=torch.device("cpu"))
        return cast(T, box[0])

    def first(self, work: Callable[[], T]) -> T:
        """Done by the main process alone; what comes of it, or that it did not, all learn."""
        made: T | None = None
        problem: Exception | None = None
        if self.main:
            try:
                made = work()
            except (RegardError, OSError, Interrupt.Now) as error:
                problem = error
        made, problem = self.told((made, problem))
        if problem is None:
            return cast(T, made)
        if self.main or isinstance(problem, Interrupt.Now):
            raise problem
        raise SystemExit(2)  # the main process says why

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier(group=self.talk)

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """The first process of each machine goes first, so that the others find its work done."""
        if self.local:
            self.wait()
        yield
        if not self.local:
            self.wait()

    def sum(self, value: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(value)
        return value


@contextlib.contextmanager
def launched(device: torch.device) -> Iterator[World]:
    """The world that `torchrun` has made, or that of one process."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or "RANK" not in os.environ:
        yield World()
        return
    rank, local = int(os.environ["RANK"]), int(os.environ.get("LOCAL_RANK", "0"))
    if device.type == "cuda":
        _take_gpu(device, local)
    try:
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=_room(rank, size), rank=rank, world_size=size, timeout=STEP)
        yield World(rank, size, local, dist.new_group(backend="gloo", timeout=PATIENCE))
        dist.destroy_process_group()  # not after an error: that would wait for what the others never finish
    except (torch.OutOfMemoryError, MemoryError):
        raise RegardError(
            f"process {rank} of {size} ran out of memory; lower training.tokens_per_batch, and raise "
            "training.accumulate as much"
        ) from None
    except RuntimeError as error:
        if not _lost(error):
            raise
        said = re.sub(r"^\[\S*\] |\. .*", "", str(error).partition("\n")[0])  # without gloo's own source and advice
        raise RegardError(f"process {rank} of {size} lost the others ({said})") from None


def _room(rank: int, size: int) -> dist.Store:
    """A store for the processes of this start alone.

    torchrun keeps one store over all restarts, and in it the addresses of processes that have ended: a new one would
    call them. So each process gives itself a name, and the first tells each name that it finds the name of the room.
    """
    store, _, _ = next(rendezvous("env://", timeout=STEP))
    own = uuid.uuid4().hex
    if rank:
        store.set(f"here/{rank}", own)
        room = store.get(f"room-of/{own}").decode()
        store.set(f"{room}/{rank}", "")
        return dist.PrefixStore(room, store)
    others = range(1, size)
    while not store.check([f"{own}/{other}" for other in others]):
        for other in others:
            store.set(f"room-of/{store.get(f'here/{other}').decode()}", own)
        time.sleep(0.01)
    return dist.PrefixStore(own, store)


def _take_gpu(device: torch.device, local: int) -> None:
    if device.index is not None:
        raise RegardError(f"under torchrun every process takes a GPU of its own; write --device cuda, not {device}")
    if local >= torch.cuda.device_count():
        raise RegardError(
            f"process {local + 1} of this machine has no GPU of its own ({torch.cuda.device_count()} here); "
            "start torchrun with --nproc-per-node of at most that, or train with --device cpu"
        )
    torch.cuda.set_device(local)


def _lost(error: RuntimeError) -> bool:
    """Whether this is how a process learns that another has ended; gloo has no class for it."""
    return isinstance(error, dist.DistError) or "gloo" in str(error) or "Connection" in str(error)


# --- models of several processes -----------------------------------------------------------------------------------


def spread(model: nn.Module, world: World, parallel: Parallel) -> nn.Module:
    """The model as all processes train it: a copy each (DDP), or each a part (FSDP2)."""
    if world.size == 1:
        return model
    if parallel == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        with warnings.catch_warnings(action="ignore"):  # of a name that is to change
            # Buffers are tables that each process can compute, and that grow when they must: nothing to send.
            return DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(next(model.parameters()).device.type, (world.size,))
    for module in [*_layers(model), model]:
        fully_shard(module, mesh=mesh)
    return model


def _layers(model: nn.Module) -> list[nn.Module]:
    """Modules to gather one at a time. None where they share weights, as positions do: these belong to no one layer."""
    layers = {name: module for name, module in model.named_modules() if getattr(module, "is_layer", False)}
    homes: dict[Tensor, set[str]] = defaultdict(set)
    for name, parameter in model.named_parameters(remove_duplicate=False):
        homes[parameter].add(next((layer for layer in layers if name.startswith(f"{layer}.")), ""))
    return list(layers.values()) if all(len(home) == 1 for home in homes.values()) else []


@contextlib.contextmanager
def quietly(model: nn.Module, quiet: bool) -> Iterator[None]:
    """Gradients stay with each process while `quiet`: they meet in a step's last backward pass."""
    if not quiet:
        yield
    elif hasattr(model, "no_sync"):
        with model.no_sync():  # type: ignore[operator]
            yield
    elif hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(False)  # type: ignore[operator]
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)  # type: ignore[operator]
    else:
        yield


def whole(value: Tensor) -> Tensor:
    """What is kept in parts, in one; all processes must ask for it."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value
