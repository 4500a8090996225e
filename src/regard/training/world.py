"""The processes of a run, as `torchrun` started them: who they are, what they agree on, how gradients meet.

One process is a world of one, for which everything here is nothing. Knows no task and no files.
"""

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regard.errors import RegardError

T = TypeVar("T")
Parallel = Literal["ddp", "fsdp"]
PATIENCE = timedelta(minutes=30)  # for a rank that prepares data, or measures, while others wait


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1
    local: int = 0  # rank on this machine

    @property
    def main(self) -> bool:
        """The one that writes and speaks."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """This process's own GPU where there are several."""
        if self.size > 1 and device.type == "cuda" and device.index is None:
            return torch.device("cuda", self.local)
        return device

    def agree(self, wanted: bool) -> bool:
        """True for all as soon as it is for one."""
        if self.size == 1:
            return wanted
        flag = torch.tensor(int(wanted))
        dist.all_reduce(flag, dist.ReduceOp.MAX, group=_talk())
        return bool(flag)

    def told(self, value: Any) -> Any:
        """What the main process has, for all."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, 0, group=_talk(), device=torch.device("cpu"))
        return box[0]

    def first(self, work: Callable[[], T]) -> T:
        """Done by the main process alone; what comes of it, or that it went wrong, all learn."""
        made, problem = None, None
        if self.main:
            try:
                made = work()
            except RegardError as error:
                problem = error
        made, failed = self.told((made, problem is not None))
        if problem is not None:
            raise problem
        if failed:
            raise SystemExit(2)  # the main process says why
        return cast(T, made)

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier(group=_talk())

    @contextlib.contextmanager
    def in_turn(self) -> Iterator[None]:
        """The first process of each machine goes first, so that the others find its work done."""
        if self.size > 1 and self.local:
            self.wait()
        try:
            yield
        finally:
            if self.size > 1 and not self.local:
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
    world = World(int(os.environ["RANK"]), size, int(os.environ.get("LOCAL_RANK", "0")))
    if device.type == "cuda":
        if world.local >= torch.cuda.device_count():
            raise RegardError(
                f"process {world.local + 1} of this machine has no GPU of its own ({torch.cuda.device_count()} here); "
                "start torchrun with --nproc-per-node of at most that, or train with --device cpu"
            )
        torch.cuda.set_device(world.local)
    dist.init_process_group("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield world
    except torch.OutOfMemoryError:
        raise RegardError(
            f"process {world.rank} of {size} ran out of GPU memory; lower training.tokens_per_batch, and raise "
            "training.accumulate as much"
        ) from None
    except dist.DistError as error:
        raise RegardError(f"process {world.rank} of {size} lost the others ({str(error).splitlines()[0]})") from None
    except RuntimeError as error:  # how gloo says that a process has gone
        if "Connection" not in str(error) and "gloo" not in str(error):
            raise
        raise RegardError(f"process {world.rank} of {size} lost the others; one of them has ended") from None
    finally:
        _GROUPS.clear()
        dist.destroy_process_group()


_GROUPS: dict[str, Any] = {}


def _talk() -> Any:
    """A group for small messages between the hosts, which never waits for a GPU."""
    if "talk" not in _GROUPS:
        _GROUPS["talk"] = dist.new_group(backend="gloo", timeout=PATIENCE)
    return _GROUPS["talk"]


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
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    for module in [m for m in model.modules() if getattr(m, "is_layer", False)] + [model]:
        fully_shard(module)
        for method in {"start", "step", "caches"} & set(dir(module)):  # ways in besides `forward`
            register_fsdp_forward_method(module, method)
    return model


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
    """A number that is kept in parts, in one."""
    return value.full_tensor() if hasattr(value, "full_tensor") else value
